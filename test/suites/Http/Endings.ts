import { expect } from "@effect/vitest"
import { keys } from "../../Harness.ts"
import { at, bodyOf, type Check, expectError, get, head, put, space, wire } from "./Fixture.ts"

const json = "Content-Type: application/json"

const write = (namespace: string, key: string, value: unknown, ...fields: ReadonlyArray<string>): string => {
  const body = JSON.stringify({ value })
  return head(`PUT ${at(namespace, key)}`, json, `Content-Length: ${body.length}`, ...fields) + body
}

const h2c = ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"]

/** What clients get on a connection that they, or the service, are about to end, or that is about to become another. */
export const endings = (check: Check) => {
  check("a client that half-closes after its requests gets the answers, and then the end", function* () {
    const namespace = space()
    const connection = yield* wire
    yield* connection.send(write(namespace, "a", 1))
    yield* connection.finish
    expect(bodyOf((yield* connection.answer)!)).toMatchObject({ value: 1, version: 1 })
    expect((yield* connection.closed).length).toBe(0)
    const row = yield* wire
    yield* row.send(write(namespace, "a", 2), write(namespace, "b", 3), head(`GET ${at(namespace, "a")}`))
    yield* row.finish
    for (const value of [2, 3, 2]) expect(bodyOf((yield* row.answer)!)).toMatchObject({ value })
    expect((yield* row.closed).length).toBe(0)
    expect(bodyOf(yield* get(namespace, "b"))).toMatchObject({ value: 3 })
  })

  check("a client that half-closes within a body writes nothing, and gets an error", function* () {
    const namespace = space()
    const connection = yield* wire
    yield* connection.send(head(`PUT ${at(namespace, "k")}`, json, "Content-Length: 100"), '{"value":1}')
    yield* connection.finish
    expect((yield* connection.answer)?.status).toBe(400)
    yield* connection.closed
    expectError(yield* get(namespace, "k"), 404)
  })

  check("requests behind an ignored upgrade are answered", function* () {
    const namespace = space()
    const connection = yield* wire
    yield* connection.send(
      write(namespace, "a", 1, ...h2c) +
        head(`GET ${at(namespace, "a")}`, ...h2c) +
        write(namespace, "a", 2) +
        head(`GET ${at(namespace, "a")}`, ...h2c) +
        head(`GET ${at(namespace, "none")}`)
    )
    for (const value of [1, 1, 2, 2]) expect(bodyOf((yield* connection.answer)!)).toMatchObject({ value })
    expectError((yield* connection.answer)!, 404)
    yield* connection.send(head(`GET ${at(namespace, "a")}`))
    expect(bodyOf((yield* connection.answer)!)).toMatchObject({ value: 2 })
  })

  check("a malformed request behind an ignored upgrade is refused, and the connection ends", function* () {
    const connection = yield* wire
    yield* connection.send(`${head("GET /api/v1/health", ...h2c)}\0\0 is no request\r\n\r\n`)
    expect((yield* connection.answer)!.status).toBe(200)
    expect((yield* connection.answer)!.status).toBe(400)
    yield* connection.closed
  })

  check("a request behind CONNECT, which opens no tunnel, is answered", function* () {
    const connection = yield* wire
    yield* connection.send(head("CONNECT example.org:443") + head("GET /api/v1/health"))
    expectError((yield* connection.answer)!, 404)
    expect((yield* connection.answer)!.status).toBe(200)
  })

  check("a body in a transfer coding other than chunked is refused", function* () {
    const namespace = space()
    const connection = yield* wire
    yield* connection.send(
      head(`PUT ${at(namespace, "k")}`, json, "Transfer-Encoding: gzip, chunked"),
      'b\r\n{"value":1}\r\n0\r\n\r\n'
    )
    expectError((yield* connection.answer)!, 415)
    expectError(yield* get(namespace, "k"), 404)
  })

  check("a WebSocket handshake behind an ignored upgrade is accepted", function* () {
    const connection = yield* wire
    const handshake = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
    const key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    yield* connection.send(head("GET /api/v1/health", ...h2c) + head("GET /api/v1/changes/ws", ...handshake, key))
    expect((yield* connection.answer)!.status).toBe(200)
    expect((yield* connection.answer)!.status).toBe(101)
  })

  check("a body that is too long is answered on a connection that is to be closed, too", function* () {
    const limit = 16 * 1024 * 1024
    const body = Buffer.alloc(limit + 1, " ")
    const chunked = Buffer.concat([Buffer.from(`${body.length.toString(16)}\r\n`), body, Buffer.from("\r\n0\r\n\r\n")])
    for (const [framing, bytes] of [
      [`Content-Length: ${body.length}`, body],
      ["Transfer-Encoding: chunked", chunked]
    ] as const) {
      const connection = yield* wire
      yield* connection.send(head(`PUT ${at(space(), "k")}`, json, framing, "Connection: close"))
      // All of it, before anything is read.
      yield* connection.sendAll(bytes)
      expectError((yield* connection.answer)!, 413, String(limit))
      expect((yield* connection.closed).length).toBe(0)
    }
  })

  check("a client that waits for 100 Continue is answered at once if its body would be refused", function* () {
    const namespace = space()
    const long = "Content-Length: 1000000000"
    const expecting = (requestLine: string, ...fields: ReadonlyArray<string>) =>
      head(requestLine, "Expect: 100-continue", ...fields)
    const target = `PUT ${at(namespace, "k")}`
    const stranger = expecting(target, json, "Content-Length: 11").replace(keys.write, "nobody")
    const reader = expecting(target, json, "Content-Length: 11").replace(keys.write, keys.read)
    for (const [status, request] of [
      [401, stranger],
      [403, reader],
      [413, expecting(target, json, long)],
      [415, expecting(target, "Content-Type: text/plain", "Content-Length: 11")],
      [415, expecting(target, json, "Content-Encoding: gzip", "Content-Length: 11")],
      [404, expecting("PUT /api/v1/nowhere", json, "Content-Length: 11")],
      [405, expecting("PUT /api/v1/batch", json, "Content-Length: 11")]
    ] as const) {
      const connection = yield* wire
      yield* connection.send(request)
      const answer = (yield* connection.answer)!
      expect([request, answer.status]).toEqual([request, status])
      expect(answer.headers.connection).toBe("close")
      expect((yield* connection.closed).length).toBe(0)
    }
    yield* put(namespace, "k", 0)
    const connection = yield* wire
    yield* connection.send(head(`GET ${at(namespace, "k")}`) + expecting(target, json, "Content-Length: 11"))
    expect(bodyOf((yield* connection.answer)!)).toMatchObject({ value: 0 })
    expect((yield* connection.answer)!.status).toBe(100)
    yield* connection.send('{"value":1}')
    const answer = (yield* connection.answer)!
    expect(bodyOf(answer)).toMatchObject({ value: 1, version: 2 })
    expect(answer.headers.connection).toBe("keep-alive")
    yield* connection.send(head(`GET ${at(namespace, "k")}`))
    expect(bodyOf((yield* connection.answer)!)).toMatchObject({ value: 1 })
  })
}
