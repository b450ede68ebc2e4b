import { expect } from "@effect/vitest"
import { keys } from "../../Harness.ts"
import {
  bodyOf,
  type Check,
  call,
  end,
  errorOf,
  expectError,
  headersOf,
  listAt,
  put,
  remove,
  space
} from "./Fixture.ts"

const target = "/api/v1/kv/read"

const read = (addresses: unknown, extras = {}) => call("POST", target, { json: { keys: addresses }, ...extras })

/** Several entries from one snapshot. */
export const reads = (check: Check) => {
  check(
    "entries are answered in the order of the keys, as single reads show them, and null where there is none",
    function* () {
      const [one, other] = [space(), space()]
      const a = yield* put(one, "a/b %", { b: 1, a: [1e3] })
      const b = yield* put(other, "😀", null)
      yield* put(one, "gone", 1)
      yield* remove(one, "gone")
      const wanted = [
        { namespace: other, key: "😀" },
        { namespace: one, key: "gone" },
        { namespace: one, key: "a/b %" },
        { namespace: other, key: "a/b %" },
        { namespace: other, key: "😀" }
      ]
      const answer = yield* read(wanted)
      expect(answer.text).toBe(`{"items":[${b.text},null,${a.text},null,${b.text}]}`)
      expect(headersOf(answer)).toEqual({
        "content-type": "application/json",
        "kv-last-seq": String(yield* end),
        "kv-epoch": expect.any(String)
      })
      expect((yield* read([])).text).toBe('{"items":[]}')
      // The credential that only reads may.
      expect((yield* read(wanted, { key: keys.read })).text).toBe(answer.text)
      expectError(yield* read(wanted, { key: null }), 401, "Unauthorized")
    }
  )

  check("as many keys as a batch has operations, and as many bytes as a body", function* () {
    const namespace = space()
    const many = Array.from({ length: 1000 }, (_, index) => ({ namespace, key: `k${index}` }))
    expect(bodyOf<{ items: ReadonlyArray<null> }>(yield* read(many)).items).toHaveLength(1000)
    expectError(yield* read([...many, many[0]]), 413, "keys", "1000")
    const large = "x".repeat(1024 * 1024 - 2)
    yield* put(namespace, "large", large)
    const address = { namespace, key: "large" }
    const most = yield* read(Array.from({ length: 16 }, () => address))
    expect([most.status, most.bytes.length > 16 * 1024 * 1024]).toEqual([200, true])
    expectError(yield* read(Array.from({ length: 17 }, () => address)), 413, "keys", String(16 * 1024 * 1024))
  })

  check("with keysOnly entries come without their values, which count nothing", function* () {
    const namespace = space()
    const entry = bodyOf<{ value: string }>(yield* put(namespace, "large", "x".repeat(1024 * 1024 - 2)))
    const address = { namespace, key: "large" }
    const many = [{ namespace, key: "absent" }, ...Array.from({ length: 17 }, () => address)]
    const answer = yield* call("POST", target, { json: { keys: many, keysOnly: true } })
    const { value, ...rest } = entry
    expect(bodyOf(answer)).toEqual({ items: [null, ...Array.from({ length: 17 }, () => rest)] })
    expect(answer.headers["kv-last-seq"]).toBe(String(yield* end))
    const off = yield* call("POST", target, { json: { keys: [address], keysOnly: false } })
    expect(bodyOf(off)).toEqual({ items: [entry] })
  })

  check("a malformed request is 400, and names what is wrong", function* () {
    const namespace = space()
    const address = { namespace, key: "k" }
    for (const [body, named] of [
      [{}, "keys"],
      [{ keys: [1] }, "keys[0]"],
      [{ keys: [address, { namespace }] }, "keys[1].key"],
      [{ keys: [{ namespace: "\ud800", key: "k" }] }, "keys[0].namespace"],
      [{ keys: [{ namespace, key: "k".repeat(1025) }] }, "1024"],
      [{ keys: [{ ...address, ifVersion: 1 }] }, "ifVersion"],
      [{ keys: [address], prefix: "a" }, "prefix"],
      [{ keys: [address], keysOnly: 1 }, "keysOnly"]
    ] as const) {
      const answer = yield* call("POST", target, { json: body })
      expect([answer.status, errorOf(answer)]).toEqual([400, expect.stringContaining(named)])
    }
    expectError(yield* call("PUT", target, { json: { keys: [] } }), 405, "POST")
  })

  check("a namespace may have the name of the route", function* () {
    yield* put("read", "k", 1)
    expect(bodyOf(yield* call("GET", listAt("read")))).toMatchObject({ items: [{ key: "k", value: 1 }] })
    expect(bodyOf(yield* call("GET", `${target}/k`))).toMatchObject({ namespace: "read", value: 1 })
  })
}
