import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { at, bodyOf, type Check, call, expectError, get, head, space, wire } from "./Fixture.ts"

const mebibyte = 1024 * 1024
const limit = 16 * mebibyte

/** A chunk of a chunked body. */
const chunk = (bytes: Uint8Array): Uint8Array =>
  Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from("\r\n")])

const lastChunk = "0\r\n\r\n"

const json = "Content-Type: application/json"

/** A body of exactly so many bytes whose value alone is small. */
const bodyOfLength = (bytes: number): Buffer => Buffer.from(`{"value":1${" ".repeat(bytes - 11)}}`)

/** Request bodies: their types, encodings, sizes and ends. */
export const bodies = (check: Check) => {
  check("a body that is not JSON in UTF-8 is refused with the reason", function* () {
    const namespace = space()
    const cases: ReadonlyArray<readonly [string | Uint8Array, ...ReadonlyArray<string>]> = [
      ["", "empty"],
      ["{", "JSON"],
      ['{"value":1}}', "JSON"],
      ['{"value":1}{"value":2}', "JSON"],
      ["value=1", "JSON"],
      ['{"value":"\n"}', "JSON"],
      [Buffer.from('{"value":"\xff"}', "latin1"), "UTF-8"],
      [Buffer.from('{"value":1}', "utf16le"), "JSON"],
      ["[]", ""],
      ["null", ""],
      ["{}", "value"],
      ['{"values":1}', "value"],
      ['{"value":1,"actor":5}', "actor"],
      ['{"value":1,"ttlMs":"5"}', "ttlMs"],
      ['{"value":1,"ttlMs":0}', "ttlMs", "0"],
      ['{"value":1,"ttlMs":1.5}', "ttlMs", "1.5"],
      ['{"value":1,"expiresAt":-1}', "expiresAt", "-1"],
      ['{"value":1,"expiresAt":9e15}', "expiresAt"]
    ]
    for (const [body, ...named] of cases) {
      const answer = yield* call("PUT", at(namespace, "k"), { body })
      expect([body, answer.status]).toEqual([body, 400])
      expectError(answer, 400, ...named)
    }
    expectError(yield* get(namespace, "k"), 404)
  })

  check("a body without bytes counts as empty", function* () {
    expectError(yield* call("PUT", at(space(), "k")), 400, "empty")
    expectError(yield* call("POST", "/api/v1/batch"), 400, "empty")
  })

  check("an invalid batch is refused, naming the place", function* () {
    const namespace = space()
    const good = { op: "set", namespace, key: "k", value: 1 }
    const cases: ReadonlyArray<readonly [unknown, ...ReadonlyArray<string>]> = [
      [{}, "operations"],
      [{ operations: null }, "operations"],
      [{ operations: [5] }, "operations[0]"],
      [{ operations: [good, null] }, "operations[1]"],
      [{ operations: [good, { ...good, op: "put" }] }, "operations[1]", "op"],
      [{ operations: [{ ...good, namespace: 5 }] }, "operations[0]", "namespace"],
      [{ operations: [{ ...good, key: undefined }] }, "operations[0]", "key"],
      [{ operations: [good, { ...good, value: undefined }] }, "operations[1]", "value"],
      [{ operations: [{ ...good, ifVersion: -1 }] }, "operations[0]", "ifVersion"],
      [{ operations: [{ ...good, ttlMs: 1, expiresAt: 8e15 }] }, "operations[0]", "ttlMs", "expiresAt"],
      [{ operations: [{ ...good, expiresAt: 1 }] }, "operations[0]", "expiresAt"],
      [{ operations: [good], actor: 5 }, "actor"],
      [[good], ""]
    ]
    for (const [body, ...named] of cases) {
      const answer = yield* call("POST", "/api/v1/batch", { json: body })
      expect([body, answer.status]).toEqual([body, 400])
      expectError(answer, 400, ...named)
    }
    expectError(yield* get(namespace, "k"), 404)
  })

  check("a byte order mark is skipped, and so is the value of a delete", function* () {
    const namespace = space()
    const marked = yield* call("PUT", at(namespace, "k"), { body: '\ufeff{"value":1}' })
    expect(bodyOf(marked)).toMatchObject({ value: 1, version: 1 })
    const operation = { op: "delete", namespace, key: "k", value: { ttl: [1] } }
    for (const deleted of [true, false]) {
      const batched = yield* call("POST", "/api/v1/batch", { json: { operations: [operation] } })
      expect(batched.text).toBe(`{"ok":true,"results":[{"deleted":${deleted}}]}`)
    }
  })

  check("unknown members are refused by name, and write nothing", function* () {
    const namespace = space()
    const set = { op: "set", namespace, key: "k", value: 1 }
    const gone = { op: "delete", namespace, key: "k" }
    const names = ["ttl", "Value", "version", "", "__proto__", "toString"]
    const contents = ["1", '"x"', "null", "{}", "[[1]]"]
    // A name with an escape is decoded; one without is compared by its bytes.
    const spellings = (name: string) => [
      name,
      ...(name === "" ? [] : [`\\u00${name.charCodeAt(0).toString(16)}${name.slice(1)}`])
    ]
    const withMember = (body: object, name: string, content: string) =>
      JSON.stringify(body).replace(/\}$/, `,"${name}":${content}}`)
    for (const name of names) {
      for (const [index, spelled] of spellings(name).entries()) {
        const content = contents[(names.indexOf(name) + index) % contents.length]!
        const put = yield* call("PUT", at(namespace, "k"), { body: withMember({ value: 1 }, spelled, content) })
        expectError(put, 400, name)
        const around = yield* call("POST", "/api/v1/batch", {
          body: withMember({ operations: [set] }, spelled, content)
        })
        expectError(around, 400, name)
        for (const operation of [set, gone]) {
          const body = `{"operations":[${JSON.stringify(set)},${withMember(operation, spelled, content)}]}`
          expectError(yield* call("POST", "/api/v1/batch", { body }), 400, `operations[1].${name}`)
        }
      }
    }
    for (const misplaced of [{ operations: [] }, { namespace }, { key: "k" }, { op: "set" }]) {
      const json = { value: 1, ...misplaced }
      expectError(yield* call("PUT", at(namespace, "k"), { json }), 400, Object.keys(misplaced)[0]!)
    }
    for (const misplaced of [{ value: 1 }, { ttlMs: 1000 }, { namespace }]) {
      const json = { operations: [set], ...misplaced }
      expectError(yield* call("POST", "/api/v1/batch", { json }), 400, Object.keys(misplaced)[0]!)
    }
    for (const misplaced of [{ ttlMs: 1000 }, { expiresAt: 8e15 }, { actor: "a" }]) {
      const json = { operations: [{ ...gone, ...misplaced }] }
      expectError(yield* call("POST", "/api/v1/batch", { json }), 400, `operations[0].${Object.keys(misplaced)[0]}`)
    }
    expectError(yield* get(namespace, "k"), 404)
  })

  check("a body counts as JSON by its type, or without one", function* () {
    const namespace = space()
    const body = '{"value":1}'
    const taken = [
      undefined,
      "Application/JSON",
      'application/json; Charset="UTF-8"',
      "application/json; profile=x",
      "application/vnd.api+json"
    ]
    const refused = [
      "text/plain",
      "application/x-www-form-urlencoded",
      "multipart/form-data; boundary=x",
      "application/jsonx",
      "application/json-seq",
      "application/json; charset=iso-8859-1",
      "*/*",
      "json"
    ]
    for (const type of taken) {
      const connection = yield* wire
      const typed = type === undefined ? [] : [`Content-Type: ${type}`]
      yield* connection.send(head(`PUT ${at(namespace, "k")}`, "Content-Length: 11", ...typed), body)
      expect([type, (yield* connection.answer)?.status]).toEqual([type, 200])
    }
    const version = (yield* get(namespace, "k")).headers.etag
    for (const type of refused) {
      for (const [method, target] of [
        ["PUT", at(namespace, "k")],
        ["POST", "/api/v1/batch"]
      ] as const) {
        const answer = yield* call(method, target, { body, headers: { "content-type": type } })
        expect([type, answer.status]).toEqual([type, 415])
      }
    }
    expect((yield* get(namespace, "k")).headers.etag).toBe(version)
  })

  check("a compressed body is refused, naming the encoding", function* () {
    const namespace = space()
    for (const encoding of ["GZIP", "br", "identity, gzip"]) {
      const headers = { "content-encoding": encoding }
      const answer = yield* call("PUT", at(namespace, "k"), { body: '{"value":1}', headers })
      expectError(answer, 415, encoding)
      expect(answer.headers["accept-encoding"]).toBe("identity")
    }
    const headers = { "content-encoding": "identity" }
    expect((yield* call("PUT", at(namespace, "k"), { body: '{"value":1}', headers })).status).toBe(200)
  })

  check("a chunked body is read completely, however it is split", function* () {
    const namespace = space()
    const connection = yield* wire
    const bytes = Buffer.from('{"value":"é😀"}')
    yield* connection.send(head(`PUT ${at(namespace, "k")}`, json, "Transfer-Encoding: chunked"))
    for (const byte of bytes) yield* connection.send(chunk(new Uint8Array([byte])))
    yield* connection.send(lastChunk)
    expect(bodyOf((yield* connection.answer)!)).toMatchObject({ value: "é😀", version: 1 })
    yield* connection.send(head(`PUT ${at(namespace, "k")}`, json, "Transfer-Encoding: chunked"), lastChunk)
    expectError((yield* connection.answer)!, 400, "empty")
  })

  check("a body may have 16 MiB, and a longer one is answered 413 on a connection that stays open", function* () {
    const namespace = space()
    const connection = yield* wire
    const request = `PUT ${at(namespace, "k")}`
    yield* connection.send(head(request, json, `Content-Length: ${limit}`))
    yield* connection.sendAll(bodyOfLength(limit))
    expect(bodyOf((yield* connection.answer)!)).toMatchObject({ value: 1, version: 1 })
    yield* connection.send(head(request, json, `Content-Length: ${limit + 1}`))
    yield* connection.sendAll(bodyOfLength(limit + 1))
    expectError((yield* connection.answer)!, 413, String(limit + 1), String(limit))
    yield* connection.send(head(`GET ${at(namespace, "k")}`))
    expect(bodyOf((yield* connection.answer)!)).toMatchObject({ version: 1 })
  })

  check("a chunked body over the limit is answered 413 on a connection that stays open", function* () {
    const namespace = space()
    const connection = yield* wire
    yield* connection.send(head(`PUT ${at(namespace, "k")}`, json, "Transfer-Encoding: chunked"))
    const part = chunk(Buffer.alloc(mebibyte, " "))
    for (let sent = 0; sent <= limit; sent += mebibyte) yield* connection.sendAll(part)
    yield* connection.send(lastChunk)
    expectError((yield* connection.answer)!, 413, String(limit))
    yield* connection.send(head(`GET ${at(namespace, "k")}`))
    expectError((yield* connection.answer)!, 404, "Not found")
  })

  check("a body that is declared huge is answered before it is sent", function* () {
    const connection = yield* wire
    yield* connection.send(head(`PUT ${at(space(), "k")}`, json, "Content-Length: 1000000000000"), '{"value":')
    expectError((yield* connection.answer)!, 413, "1000000000000", String(limit))
  })

  check("the connection of an endless oversized body is closed", function* () {
    const connection = yield* wire
    yield* connection.send(head(`PUT ${at(space(), "k")}`, json, "Transfer-Encoding: chunked"))
    const part = chunk(Buffer.alloc(8 * mebibyte, " "))
    const flood = Effect.repeatN(connection.sendAll(part), 40)
    yield* Effect.raceFirst(connection.closed, Effect.zipRight(flood, Effect.never))
  })

  check("a truncated body writes nothing", function* () {
    const namespace = space()
    for (const framing of ["Content-Length: 100", "Transfer-Encoding: chunked"]) {
      for (const ending of ["finish", "cut"] as const) {
        const connection = yield* wire
        yield* connection.send(head(`PUT ${at(namespace, "k")}`, json, framing))
        yield* connection.send(framing.startsWith("T") ? chunk(Buffer.from('{"value":1}')) : '{"value":1}')
        yield* connection[ending]
        yield* connection.closed
      }
    }
    expectError(yield* get(namespace, "k"), 404)
  })

  check("a client that waits for 100 Continue gets it", function* () {
    const namespace = space()
    const connection = yield* wire
    const request = head(`PUT ${at(namespace, "k")}`, json, "Content-Length: 11", "Expect: 100-continue")
    yield* connection.send(request)
    expect((yield* connection.answer)!.status).toBe(100)
    yield* connection.send('{"value":1}')
    expect((yield* connection.answer)!.status).toBe(200)
  })

  check("a body on a GET or a DELETE is ignored", function* () {
    const namespace = space()
    const connection = yield* wire
    for (const method of ["GET", "DELETE"]) {
      yield* connection.send(head(`${method} ${at(namespace, "k")}`, json, "Content-Length: 3"), "{x}")
      expect([200, 404]).toContain((yield* connection.answer)!.status)
    }
  })
}
