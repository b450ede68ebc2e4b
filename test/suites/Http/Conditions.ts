import { expect } from "@effect/vitest"
import {
  at,
  batch,
  type Check,
  call,
  end,
  expectError,
  follow,
  get,
  head,
  headersOf,
  listAt,
  put,
  remove,
  space,
  wire
} from "./Fixture.ts"

const match = (tags: string) => ({ headers: { "if-match": tags } })
const noneMatch = (tags: string) => ({ headers: { "if-none-match": tags } })

const garbage = ["", "3", '"3', '"3" "4"', 'w/"3"', "*, *", '"3", *', "null", '"a"b"', ","]

/** Conditional requests. */
export const conditions = (check: Check) => {
  check("a GET answers 304 if the client has the version", function* () {
    const namespace = space()
    for (const value of [1, 2, 3]) yield* put(namespace, "k", value)
    for (const tags of ['"3"', 'W/"3"', '"1", "3"', '"1","2",W/"3"', ' "x" , "3" ', "*", '"3",', ',"3"']) {
      const answer = yield* get(namespace, "k", noneMatch(tags))
      expect([tags, answer.status, answer.text, headersOf(answer)]).toEqual([tags, 304, "", { etag: '"3"' }])
    }
    for (const tags of ['"1"', '"03"', '"3.0"', '" 3"', '""', '"x"', '"1", "2"', '"99999999999999999999"']) {
      const answer = yield* get(namespace, "k", noneMatch(tags))
      expect([tags, answer.status, answer.headers.etag]).toEqual([tags, 200, '"3"'])
    }
    expectError(yield* get(namespace, "none", noneMatch("*")), 404, "Not found")
  })

  check("a GET with If-Match answers 412 if the version differs", function* () {
    const namespace = space()
    yield* put(namespace, "k", 1)
    for (const tags of ['"1"', "*", '"2", "1"']) expect((yield* get(namespace, "k", match(tags))).status).toBe(200)
    for (const tags of ['"2"', 'W/"1"', '""']) {
      const answer = yield* get(namespace, "k", match(tags))
      expectError(answer, 412, "version 1")
      expect(headersOf(answer)).toEqual({ "content-type": "application/json", etag: '"1"' })
    }
    expectError(yield* get(namespace, "none", match('"1"')), 404, "Not found")
  })

  check("a PUT and a DELETE are carried out only if their precondition holds", function* () {
    const namespace = space()
    for (const missing of [yield* put(namespace, "k", 0, match("*")), yield* remove(namespace, "k", match('"1"'))]) {
      expectError(missing, 412, "absent")
      expect(headersOf(missing)).toEqual({ "content-type": "application/json" })
    }
    expect((yield* put(namespace, "k", 1, noneMatch("*"))).headers.etag).toBe('"1"')
    expect((yield* put(namespace, "k", 2, match('"7", "1"'))).headers.etag).toBe('"2"')
    expect((yield* put(namespace, "k", 3, noneMatch('"1", "9"'))).headers.etag).toBe('"3"')
    for (const extras of [match('W/"3"'), match('"x"'), noneMatch("*"), noneMatch('W/"3"')]) {
      for (const answer of [yield* put(namespace, "k", 6, extras), yield* remove(namespace, "k", extras)]) {
        expectError(answer, 412, "version 3")
        expect(headersOf(answer)).toEqual({ "content-type": "application/json", etag: '"3"' })
      }
    }
    expect((yield* remove(namespace, "k", match('"3"'))).text).toBe('{"deleted":true}')
    expectError(yield* put(namespace, "k", 7, match('"4"')), 412, "absent")
    expect((yield* put(namespace, "k", 7, noneMatch("*"))).headers.etag).toBe('"5"')
  })

  check("both preconditions at once must both hold", function* () {
    const namespace = space()
    yield* put(namespace, "k", 1)
    const both = (ifMatch: string, ifNoneMatch: string) => ({
      headers: { "if-match": ifMatch, "if-none-match": ifNoneMatch }
    })
    expect((yield* get(namespace, "k", both('"1"', '"1"'))).status).toBe(304)
    expect((yield* get(namespace, "k", both('"2"', '"1"'))).status).toBe(412)
    expect((yield* get(namespace, "k", both('"1"', '"2"'))).status).toBe(200)
    expect((yield* put(namespace, "k", 2, both('"1"', "*"))).status).toBe(412)
    expect((yield* put(namespace, "k", 2, both('"1"', '"2"'))).status).toBe(200)
    expect((yield* put(namespace, "k", 3, both('"1"', '"9"'))).status).toBe(412)
  })

  check("a repeated header is one list", function* () {
    const namespace = space()
    yield* put(namespace, "k", 1)
    const connection = yield* wire
    const body = '{"value":2}'
    const headers = ["Content-Type: application/json", `Content-Length: ${body.length}`]
    yield* connection.send(head(`PUT ${at(namespace, "k")}`, ...headers, 'If-Match: "7"', 'If-Match: "1"'), body)
    expect((yield* connection.answer)?.headers.etag).toBe('"2"')
  })

  check("an invalid precondition is refused, never ignored", function* () {
    const namespace = space()
    yield* put(namespace, "k", 1)
    for (const tags of garbage) {
      for (const [name, extras] of [
        ["If-Match", match(tags)],
        ["If-None-Match", noneMatch(tags)]
      ] as const) {
        for (const answer of [
          yield* put(namespace, "k", 2, extras),
          yield* remove(namespace, "k", extras),
          yield* get(namespace, "k", extras)
        ]) {
          expect([name, tags, answer.status]).toEqual([name, tags, 400])
          expectError(answer, 400, name)
        }
      }
    }
    expect((yield* get(namespace, "k")).headers.etag).toBe('"1"')
  })

  check("a precondition on a list is not one of an entry", function* () {
    const namespace = space()
    yield* put(namespace, "k", 1)
    expect((yield* call("GET", listAt(namespace), noneMatch("*"))).status).toBe(200)
  })

  check(
    "a precondition of another kind of request is refused, naming what to use, and nothing is written",
    function* () {
      const namespace = space()
      yield* put(namespace, "k", 1)
      const operations = [{ op: "delete", namespace, key: "k" }]
      for (const extras of [match('"1"'), match("*"), noneMatch("*")]) {
        expectError(yield* batch(operations, extras), 400, "is not accepted here; use ifVersion of an operation")
      }
      const whole = yield* call("POST", "/api/v1/batch", { json: { operations, ifVersion: 1 } })
      expectError(whole, 400, "ifVersion: is not accepted here; use ifVersion of an operation")
      for (const ifVersion of [0, 1, 7, null, "1"]) {
        const answer = yield* call("PUT", at(namespace, "k"), { json: { value: 2, ifVersion } })
        expectError(answer, 400, "ifVersion: is not accepted here; use the header If-Match")
      }
      const members = '"value" | "actor" | "ttlMs" | "expiresAt"'
      const misspelled = yield* call("PUT", at(namespace, "k"), { json: { value: 2, ifversion: 1 } })
      expectError(misspelled, 400, `ifversion: is unexpected, expected: ${members}`)
      const unknown = yield* call("POST", "/api/v1/batch", { json: { operations, ifversion: 1 } })
      expectError(unknown, 400, 'ifversion: is unexpected, expected: "operations" | "actor"')
      // What is always refused is not offered.
      for (const answer of [misspelled, unknown]) expect(answer.text).not.toContain("ifVersion")
      expect((yield* get(namespace, "k")).headers.etag).toBe('"1"')
    }
  )

  check("a batch is refused whole by one ifVersion that does not hold, naming the operation", function* () {
    const namespace = space()
    yield* put(namespace, "k", 1)
    const start = yield* end
    const set = (key: string, ifVersion?: number) => ({ op: "set", namespace, key, value: 1, ifVersion })
    const cases = [
      [[set("a"), set("b"), set("k", 2)], "operations[2]", "version 1"],
      [[set("k", 0)], "operations[0]", "version 1"],
      [[set("a", 1)], "operations[0]", "absent"],
      [[set("a"), set("a", 0)], "operations[1]", "absent, and an earlier operation of the batch"],
      [[set("k"), { op: "delete", namespace, key: "k", ifVersion: 1 }], "operations[1]", "version 1, and an"],
      [[{ op: "delete", namespace, key: "a", ifVersion: 3 }], "operations[0]", "absent"]
    ] as const
    for (const [operations, ...named] of cases) {
      const answer = yield* batch(operations)
      expectError(answer, 412, ...named)
      expect(headersOf(answer)).toEqual({ "content-type": "application/json" })
    }
    expect(yield* follow(start)).toEqual([])
  })
}
