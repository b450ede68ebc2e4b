import { expect } from "@effect/vitest"
import { keys } from "../../Harness.ts"
import {
  bodyOf,
  type Check,
  call,
  changesOf,
  end,
  expectError,
  items,
  listAt,
  numbered,
  put,
  setAll,
  space
} from "./Fixture.ts"

/** Deletes of a prefix. */
export const prefixDeletes = (check: Check) => {
  check("a prefix is deleted in pieces of the limit, each in the change log, until nothing is left", function* () {
    const namespace = `${space()} /%é`
    yield* setAll(namespace, ["a", "b/1", "b/2", "b/3", "c"])
    const start = yield* end
    const first = yield* call("DELETE", `${listAt(namespace)}?prefix=b/&limit=2&actor=anna`)
    expect(first.text).toBe('{"deleted":true,"count":2,"more":true}')
    const second = yield* call("DELETE", `${listAt(namespace)}?prefix=b/&limit=2`)
    expect(second.text).toBe('{"deleted":true,"count":1,"more":false}')
    const third = yield* call("DELETE", `${listAt(namespace)}?prefix=b/`)
    expect(third.text).toBe('{"deleted":false,"count":0,"more":false}')
    expect(
      (yield* changesOf(namespace, start)).map(({ actor, key, op, version }) => [op, key, version, actor])
    ).toEqual([
      ["delete", "b/1", 2, "anna"],
      ["delete", "b/2", 2, "anna"],
      ["delete", "b/3", 2, "api"]
    ])
    expect(items(yield* call("GET", listAt(namespace))).map(({ key }) => key)).toEqual(["a", "c"])
    expect(bodyOf(yield* call("DELETE", `${listAt(namespace)}?prefix=`))).toEqual({
      deleted: true,
      count: 2,
      more: false
    })
    expect(items(yield* call("GET", listAt(namespace)))).toEqual([])
  })

  check("at most 1000 entries go at a time", function* () {
    const namespace = space()
    yield* setAll(namespace, numbered(1001))
    expect(bodyOf(yield* call("DELETE", `${listAt(namespace)}?prefix=k`))).toEqual({
      deleted: true,
      count: 1000,
      more: true
    })
  })

  check("the prefix must be there, preconditions must not, and the key must write", function* () {
    const namespace = space()
    yield* put(namespace, "k", 1)
    const target = `${listAt(namespace)}?prefix=k`
    expectError(yield* call("DELETE", listAt(namespace)), 400, "prefix")
    expectError(yield* call("DELETE", `${listAt(namespace)}?limit=1`), 400, "prefix")
    expectError(yield* call("DELETE", `${target}&prefix=k`), 400, "prefix")
    for (const limit of ["0", "1001", "x"]) expectError(yield* call("DELETE", `${target}&limit=${limit}`), 400, "limit")
    for (const name of ["if-match", "if-none-match"]) {
      expectError(yield* call("DELETE", target, { headers: { [name]: '"1"' } }), 400, name)
    }
    expectError(yield* call("DELETE", `${listAt(namespace)}?prefix=a%00`), 400, "prefix", "U+0000")
    expectError(yield* call("DELETE", `${target}&actor=${"x".repeat(257)}`), 400, "actor")
    expectError(yield* call("DELETE", `/api/v1/kv/?prefix=k`), 400, "namespace")
    expectError(yield* call("DELETE", target, { key: keys.read }), 403, "Forbidden")
    expectError(yield* call("DELETE", target, { key: null }), 401, "Unauthorized")
    expect(items(yield* call("GET", listAt(namespace)))).toHaveLength(1)
  })
}
