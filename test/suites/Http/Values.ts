import { expect } from "@effect/vitest"
import { texts } from "../Store/Values.ts"
import { at, type Check, call, end, expectError, get, listAt, space } from "./Fixture.ts"

const mebibyte = 1024 * 1024

/** Sets a value that is given as JSON text. */
const putText = (namespace: string, key: string, text: string) =>
  call("PUT", at(namespace, key), { body: `{"value":${text}}` })

const nested = (levels: number): string => "[".repeat(levels) + "]".repeat(levels)

/** JSON values are returned as they were sent. */
export const values = (check: Check) => {
  check("a value is in each answer as the text that was sent", function* () {
    const namespace = space()
    const start = yield* end
    for (const [index, text] of texts.entries()) {
      const written = yield* putText(namespace, `k${index}`, text)
      expect([written.status, written.text]).toEqual([200, expect.stringContaining(`"value":${text},"version":1,`)])
      expect((yield* get(namespace, `k${index}`)).text).toBe(written.text)
      const listed = yield* call("GET", `${listAt(namespace)}?prefix=k${index}&limit=1`)
      expect(listed.text).toBe(`{"items":[${written.text}]}`)
    }
    const feed = yield* call("GET", `/api/v1/changes?after=${start}`)
    for (const text of texts) expect(feed.text).toContain(`"value":${text},"version":1,`)
    expect(Object.hasOwn(Object.prototype, "polluted")).toBe(false)
    const batched = texts.map(
      (text, index) => `{"op":"set","namespace":"${namespace}","key":"b${index}","value":${text}}`
    )
    yield* call("POST", "/api/v1/batch", { body: `{"operations":[${batched.join(",")}]}` })
    for (const [index, text] of texts.entries()) {
      expect((yield* get(namespace, `b${index}`)).text).toContain(`"value":${text},"version":1,`)
    }
  })

  check("white space between the tokens of a value is not kept", function* () {
    const namespace = space()
    const body = ' {\r\n\t"value" : { "a" : [ 1 , 2 ] ,\n"b":"  " } , "actor" : "x" } \n'
    const answer = yield* call("PUT", at(namespace, "k"), { body })
    expect(answer.text).toContain('"value":{"a":[1,2],"b":"  "},"version":1,"updatedBy":"x"')
  })

  check("a value may have 1 MiB of JSON, and not one byte more", function* () {
    const namespace = space()
    for (const [unit, bytes] of [
      ["x", 1],
      ["é", 2],
      ["\\n", 2]
    ] as const) {
      const full = `"${unit.repeat((mebibyte - 2) / bytes)}"`
      expect(Buffer.byteLength(full)).toBe(mebibyte)
      const written = yield* putText(namespace, "k", `   ${full}   `)
      expect(written.status).toBe(200)
      expect((yield* get(namespace, "k")).bytes.equals(written.bytes)).toBe(true)
      const over = `"x${full.slice(1)}`
      expectError(yield* putText(namespace, "k", over), 413, "value", "1048577", "1048576")
      const operation = `{"op":"set","namespace":"${namespace}","key":"k","value":${over}}`
      const batched = yield* call("POST", "/api/v1/batch", { body: `{"operations":[${operation}]}` })
      expectError(batched, 413, "operations[0].value", "1048577", "1048576")
    }
    expect((yield* get(namespace, "k")).headers.etag).toBe('"3"')
  })

  check("an ambiguous value is refused", function* () {
    const namespace = space()
    expectError(yield* putText(namespace, "k", nested(257)), 400, "256", "deep")
    expectError(yield* putText(namespace, "k", nested(50_000)), 400, "256", "deep")
    expectError(yield* putText(namespace, "k", `${'{"a":'.repeat(257)}1${"}".repeat(257)}`), 400, "256")
    expectError(yield* putText(namespace, "k", "1e400"), 400, "1e400")
    expectError(yield* putText(namespace, "k", "[-1e999]"), 400, "-1e999")
    expectError(yield* putText(namespace, "k", '{"a":1,"a":2}'), 400, '"a"', "twice")
    expectError(yield* putText(namespace, "k", '{"a":1,"\\u0061":2}'), 400, '"a"', "twice")
    expectError(yield* putText(namespace, "k", '1,"value":2'), 400, '"value"', "twice")
    for (const text of ["NaN", "Infinity", "undefined", "01", "+1", ".5", "0x10", "'a'", "[1,]", '{"a":1,}', "//\n1"]) {
      expectError(yield* putText(namespace, "k", text), 400, "JSON")
    }
    expectError(yield* get(namespace, "k"), 404)
  })
}
