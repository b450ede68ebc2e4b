import { expect } from "@effect/vitest"
import { Effect } from "effect"
import {
  at,
  batch,
  bodyOf,
  type Check,
  call,
  type EntryBody,
  expectError,
  get,
  head,
  items,
  listAt,
  put,
  remove,
  segment,
  space,
  wire
} from "./Fixture.ts"

const odd = [
  "a/b",
  "a/../b",
  "//",
  "...",
  "a:b",
  "%2F",
  "%252F",
  "%zz",
  "a?b=c",
  "a#b",
  " padded ",
  "a+b",
  "a&b=c",
  "a;b,c@d$e!f'g(h)*",
  'a\\b"c|d^e`f{g}[h]<i>',
  "tab\tline\nreturn\r\u0001\u007f\u0085\u00a0",
  "e\u0301\u2028\ufeff",
  "日本語😀👩‍👩‍👧\u{10ffff}\uffff",
  "__proto__",
  "constructor",
  ":key",
  "*"
]

/** A raw request by its line, with its answer. */
const ask = (requestLine: string) =>
  Effect.gen(function* () {
    const connection = yield* wire
    yield* connection.send(head(requestLine))
    return (yield* connection.answer)!
  })

/** Names of namespaces and keys on their way through a path. */
export const names = (check: Check) => {
  check("a key may have anything that can be percent-encoded", function* () {
    const namespace = space()
    for (const key of odd) {
      const written = yield* put(namespace, key, key)
      expect([written.status, bodyOf(written)]).toEqual([200, expect.objectContaining({ namespace, key, value: key })])
      expect((yield* get(namespace, key)).text).toBe(written.text)
    }
    expect(new Set(items(yield* call("GET", listAt(namespace))).map(entry => entry.key))).toEqual(new Set(odd))
    for (const key of odd) expect(bodyOf(yield* remove(namespace, key))).toEqual({ deleted: true })
  })

  check("a namespace may have anything that can be percent-encoded", function* () {
    const own = space()
    for (const name of odd) {
      const namespace = `${name}|${own}`
      const written = yield* put(namespace, "k", name)
      expect(bodyOf(written)).toMatchObject({ namespace, key: "k" })
      expect(items(yield* call("GET", listAt(namespace)))).toEqual([bodyOf(written)])
    }
  })

  check("a path is decoded once, and reserved characters may stand in it as they are", function* () {
    const namespace = space()
    for (const [raw, key] of [
      ["%252F", "%2F"],
      ["%2f", "/"],
      ["%41", "A"],
      ["a+b", "a+b"],
      ["a;b", "a;b"],
      ["a;b;c=d", "a;b;c=d"],
      ["a:b@c,d&e=f", "a:b@c,d&e=f"],
      ["(a)!*'$~", "(a)!*'$~"]
    ] as const) {
      const answer = yield* call("PUT", `${listAt(namespace)}/${raw}`, { json: { value: 1 } })
      expect([raw, bodyOf(answer)]).toEqual([raw, expect.objectContaining({ key })])
    }
    const named = yield* call("GET", `${listAt(namespace)}?prefix=a;b`)
    expect(items(named).map(entry => entry.key)).toEqual(["a;b", "a;b;c=d"])
  })

  check("names may have 1,024 and 512 bytes of UTF-8, and not one more", function* () {
    const own = space()
    const key = "é".repeat(512)
    expect(bodyOf<EntryBody>(yield* put(own, key, 1)).key).toBe(key)
    expect((yield* get(own, key)).status).toBe(200)
    for (const answer of [
      yield* put(own, `${key}x`, 1),
      yield* get(own, `${key}x`),
      yield* remove(own, `${key}x`),
      yield* batch([{ op: "delete", namespace: own, key: `${key}x` }])
    ]) {
      expectError(answer, 400, "key", "1025", "1024")
    }
    expectError(yield* put(own, "x".repeat(8000), 1), 400, "key", "8000", "1024")
    const namespace = own.padEnd(512, "x")
    expect(bodyOf<EntryBody>(yield* put(namespace, "k", 1)).namespace).toBe(namespace)
    expect(items(yield* call("GET", listAt(namespace)))).toHaveLength(1)
    expectError(yield* put(`${namespace}x`, "k", 1), 400, "namespace", "513", "512")
    expectError(yield* call("GET", listAt(`${namespace}x`)), 400, "namespace", "513", "512")
  })

  check("a name that is . or .. is refused however it is written", function* () {
    const namespace = space()
    for (const name of [".", "..", "%2e", "%2E%2e", ".%2e"]) {
      const plain = name.replace(/%2e/gi, ".")
      for (const method of ["GET", "DELETE"]) {
        expectError(yield* ask(`${method} ${listAt(namespace)}/${name}`), 400, "key", `"${plain}"`)
        expectError(yield* ask(`${method} /api/v1/kv/${name}/k`), 400, "namespace", `"${plain}"`)
      }
      expectError(yield* ask(`GET /api/v1/kv/${name}`), 400, "namespace", `"${plain}"`)
      const written = yield* call("PUT", `${listAt(namespace)}/${name}`, { json: { value: 1 } })
      expectError(written, 400, "key", `"${plain}"`)
    }
    for (const name of [".", ".."]) {
      expectError(yield* batch([{ op: "set", namespace, key: name, value: 1 }]), 400, "operations[0].key", name)
      expectError(yield* batch([{ op: "delete", namespace: name, key: "k" }]), 400, "operations[0].namespace", name)
    }
  })

  check("an empty name is refused and named", function* () {
    const namespace = space()
    expectError(yield* ask(`GET ${listAt(namespace)}/`), 400, "key is empty")
    expectError(yield* ask(`DELETE ${listAt(namespace)}/`), 400, "key is empty")
    expectError(yield* ask("GET /api/v1/kv/"), 400, "namespace is empty")
    expectError(yield* ask("GET /api/v1/kv//k"), 400, "namespace is empty")
    expectError(yield* call("PUT", `${listAt(namespace)}/`, { json: { value: 1 } }), 400, "key is empty")
    expectError(yield* batch([{ op: "set", namespace, key: "", value: 1 }]), 400, "operations[0].key is empty")
    expectError(yield* batch([{ op: "delete", namespace: "", key: "k" }]), 400, "operations[0].namespace is empty")
  })

  check("a name that is not UTF-8 is refused", function* () {
    const namespace = space()
    for (const raw of ["%", "%zz", "%f", "%ff", "%c3%28", "%ed%a0%80"]) {
      expectError(yield* ask(`GET ${listAt(namespace)}/${raw}`), 400, "path", "percent-encoded")
      expectError(yield* ask(`GET /api/v1/kv/${raw}`), 400, "path", "percent-encoded")
      expectError(yield* ask(`DELETE ${listAt(namespace)}/k?actor=${raw}`), 400, "query", "percent-encoded")
      expectError(yield* ask(`GET ${listAt(namespace)}?prefix=${raw}`), 400, "query", "percent-encoded")
    }
    for (const raw of ["%00", "a%00b"]) {
      expectError(yield* ask(`GET ${listAt(namespace)}/${raw}`), 400, "key", "U+0000")
      expectError(yield* ask(`GET /api/v1/kv/${raw}`), 400, "namespace", "U+0000")
      expectError(yield* ask(`GET ${listAt(namespace)}?prefix=${raw}`), 400, "prefix", "U+0000")
      expectError(yield* ask(`DELETE ${listAt(namespace)}/k?actor=${raw}`), 400, "actor", "U+0000")
      expectError(yield* ask(`GET /api/v1/changes?tenant=${raw}`), 400, "tenant", "U+0000")
    }
    expectError(yield* ask(`GET ${listAt(namespace)}/a#b`), 400, "fragment")
    for (const escape of ["\\u0000", "\\ud800", "\\udc00x"]) {
      const body = (member: string) =>
        `{"operations":[{"op":"delete",${JSON.stringify({ namespace, key: "k", [member]: "*" }).slice(1, -1)}}]}`
      for (const member of ["namespace", "key"]) {
        const answer = yield* call("POST", "/api/v1/batch", { body: body(member).replace('"*"', `"${escape}"`) })
        expectError(answer, 400, `operations[0].${member}`)
      }
      const actor = yield* call("PUT", at(namespace, "k"), { body: `{"value":1,"actor":"${escape}"}` })
      expectError(actor, 400, "actor")
    }
    expectError(yield* get(namespace, "k"), 404)
  })

  check("an actor may have 256 bytes", function* () {
    const namespace = space()
    const longest = "é".repeat(128)
    expect(bodyOf(yield* put(namespace, "k", 1, { json: { value: 1, actor: longest } }))).toMatchObject({
      updatedBy: longest
    })
    const over = `${longest}x`
    expectError(yield* put(namespace, "k", 1, { json: { value: 1, actor: over } }), 400, "actor", "257", "256")
    expectError(yield* call("DELETE", `${at(namespace, "k")}?actor=${segment(over)}`), 400, "actor", "257", "256")
    expectError(yield* batch([], { json: { operations: [], actor: over } }), 400, "actor", "257", "256")
  })
}
