/** Followers of the change log by Server-Sent Events and WebSocket. */
import { expect } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { keys } from "../../Harness.ts"
import {
  bearer,
  bodyOf,
  type ChangesBody,
  type Check,
  call,
  changes,
  end,
  expectError,
  head,
  put,
  Site,
  segment,
  space,
  tenantOf,
  wire
} from "./Fixture.ts"
import { events, once, webSocket } from "./Followers.ts"

/** Following the change log. */
export const streams = (check: Check) => {
  check("a follower of a namespace, or of a prefix of its keys, receives only their changes", function* () {
    const mine = space()
    const start = yield* end
    const following = (query: string) => `after=${start}&namespace=${segment(mine)}${query}`
    const follow = (query: string) =>
      Effect.gen(function* () {
        const keysOf: Array<string> = []
        const socket = yield* webSocket(following(query))
        socket.on("message", data => {
          const { changes } = JSON.parse(String(data)) as ChangesBody
          keysOf.push(...changes.map(change => change.key))
        })
        yield* once(socket, "open")
        return keysOf
      })
    const [all, part] = [yield* follow(""), yield* follow("&prefix=a%2F")]
    const waiting = yield* Effect.fork(changes(`${following("&prefix=a%2Fz")}&wait=60`))
    const streaming = yield* Effect.fork(events(following("&prefix=a"), text => text.includes('"key":"a/z"')))
    const written = ["a/1", "b", "A/2", "a", "a/3", "%2F", "a/z"]
    for (const key of written) {
      yield* put(space(), key, 1)
      yield* put(mine, key, 1)
      yield* put(`${mine}x`, key, 1)
    }
    expect((yield* Fiber.join(waiting)).changes.map(change => change.key)).toEqual(["a/z"])
    const streamed = (yield* Fiber.join(streaming)).text.matchAll(/"key":"([^"]*)"/g)
    expect([...streamed].map(([, key]) => key)).toEqual(["a/1", "a", "a/3", "a/z"])
    for (const [query, selected] of [
      ["", written],
      ["&prefix=", written],
      ["&prefix=a", ["a/1", "a", "a/3", "a/z"]],
      ["&prefix=a%2F", ["a/1", "a/3", "a/z"]],
      ["&prefix=%25", ["%2F"]],
      [`&tenant=${tenantOf(mine)}`, written],
      ["&tenant=other", []],
      ["&prefix=none", []]
    ] as const) {
      const page = yield* changes(following(query))
      expect([query, page.changes.map(change => change.key)]).toEqual([query, selected])
      expect(page.changes.every(change => change.namespace === mine)).toBe(true)
      expect(page.lastSeq).toBe(yield* end)
    }
    while (all.length < written.length || part.length < 3) yield* Effect.promise(() => new Promise(setImmediate))
    expect([all, part]).toEqual([written, ["a/1", "a/3", "a/z"]])
  })

  check("Server-Sent Events carry the records, and the connection stays open", function* () {
    const namespace = space()
    const start = yield* end
    yield* put(namespace, "a", "x\ny")
    const polled = yield* call("GET", `/api/v1/changes?after=${start}`)
    const [record] = bodyOf<ChangesBody>(polled).changes
    const isEnough = (text: string) => text.includes("data:") && text.endsWith("\n\n")
    const received = yield* events("after=0", isEnough, { "last-event-id": String(start) })
    expect(received.status).toBe(200)
    expect(Object.fromEntries(received.headers)).toMatchObject({
      "content-type": "text/event-stream",
      "cache-control": "no-store"
    })
    const event = received.text.slice(received.text.indexOf(`id: ${start + 1}@`))
    expect(event).toBe(`id: ${start + 1}@${polled.headers["kv-epoch"]}\ndata: ${JSON.stringify(record)}\n\n`)
    for (const id of ["x", "-1", "1.5", "1 2", "@e", "1@", "1@a b", `1@${"e".repeat(65)}`]) {
      const answer = yield* call("GET", "/api/v1/changes/stream", { headers: { "last-event-id": id } })
      expectError(answer, 400, "Last-Event-ID")
    }
  })

  check("a WebSocket is sent the records in frames", function* () {
    const namespace = space()
    const start = yield* end
    yield* put(namespace, "k", { a: 1 })
    const polled = yield* call("GET", `/api/v1/changes?after=${start}`)
    const socket = yield* webSocket(`after=${start}&tenant=${tenantOf(namespace)}`)
    const frame = String(yield* once<Buffer>(socket, "message"))
    expect(frame).toBe(`{"type":"changes",${polled.text.slice(1, -1)},"epoch":"${polled.headers["kv-epoch"]}"}`)
  })

  check("a browser sends the key as a subprotocol of the WebSocket", function* () {
    const { port } = yield* Site
    const start = yield* end
    const encode = (key: string) => Buffer.from(key).toString("base64url")
    for (const key of [keys.read, keys.write]) {
      for (const offered of [
        ["causeway.v1", `bearer.${encode(key)}`],
        [`bearer.${encode(key)}`, "other", "causeway.v1"]
      ]) {
        const socket = yield* webSocket(`after=${start}`, offered, { origin: `http://127.0.0.1:${port}` })
        yield* once(socket, "open")
        expect(socket.protocol).toBe("causeway.v1")
      }
    }
    const shake = (path: string, ...headers: ReadonlyArray<string>) =>
      Effect.gen(function* () {
        const connection = yield* wire
        const handshake = [
          ...["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"],
          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
        ]
        yield* connection.send(
          [`GET ${path} HTTP/1.1`, "Host: localhost", ...handshake, ...headers, "", ""].join("\r\n")
        )
        return yield* connection.answer
      })
    const key = encode(keys.write)
    const authorization = `Authorization: ${bearer(keys.write)}`
    for (const [offered, others] of [
      ["causeway.v1", []],
      [`bearer.${key}`, []],
      [`other, bearer.${key}`, []],
      ["causeway.v1, bearer.", []],
      [`causeway.v1, bearer.${keys.write}`, []],
      [`causeway.v1, bearer.${encode("wrong")}`, []],
      [`causeway.v1, bearer.${key}=`, []],
      [`causeway.v1, bearer.${key}, bearer.${key}`, []],
      [`causeway.v1, bearer.${key}`, [authorization]],
      [`causeway.v1, bearer.${key}`, ["Authorization: Bearer wrong"]],
      [`causeway.v1, bearer.${key}`, ["Authorization:"]],
      [`causeway.v1, bearer.${key}`, [`Sec-WebSocket-Protocol: bearer.${key}`]]
    ] as const) {
      const answer = yield* shake("/api/v1/changes/ws", `Sec-WebSocket-Protocol: ${offered}`, ...others)
      expect([offered, others, answer?.status, answer?.text]).toEqual([
        offered,
        others,
        401,
        '{"error":"Unauthorized"}'
      ])
    }
    for (const [origin, status] of [
      ["http://localhost", 101],
      ["http://localhost:80", 101],
      ["http://evil.example", 403],
      ["http://localhost.evil.example", 403],
      ["null", 403],
      ["", 403]
    ] as const) {
      const offered = `Sec-WebSocket-Protocol: causeway.v1, bearer.${key}`
      const answer = yield* shake("/api/v1/changes/ws", offered, `Origin: ${origin}`)
      expect([origin, answer?.status]).toEqual([origin, status])
      if (status === 101) expect(answer?.headers["sec-websocket-protocol"]).toBe("causeway.v1")
    }
    const plain = { "sec-websocket-protocol": `causeway.v1, bearer.${key}` }
    for (const path of ["/api/v1/changes", "/api/v1/changes/ws"]) {
      expectError(yield* call("GET", path, { key: null, headers: plain }), 401, "Unauthorized")
    }
  })

  check("an invalid WebSocket handshake is 500, and an upgrade of another request changes no answer", function* () {
    expectError(yield* call("GET", "/api/v1/changes/ws"), 500, "WebSocket")
    const upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
    const key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    for (const [line, headers, status] of [
      ["GET /api/v1/changes/ws", upgrade, 500],
      ["GET /api/v1/changes/ws", [...upgrade, "Sec-WebSocket-Key: short"], 500],
      ["GET /api/v1/changes/ws", [...upgrade.slice(0, 2), "Sec-WebSocket-Version: 7", key], 500],
      ["GET /api/v1/changes/ws?after=x", [...upgrade, key], 400],
      ["GET /api/v1/health", [...upgrade, key], 200],
      ["GET /nowhere", [...upgrade, key], 404],
      ["POST /api/v1/changes/ws", [...upgrade, key, "Content-Length: 0"], 405]
    ] as const) {
      const connection = yield* wire
      yield* connection.send(head(line, ...headers))
      const answer = yield* connection.answer
      expect([line, headers, answer?.status]).toEqual([line, headers, status])
      expect(answer?.headers["content-type"]).toBe("application/json")
    }
    const stranger = yield* wire
    yield* stranger.send(head("GET /api/v1/changes/ws", ...upgrade, key).replace(bearer(keys.write), "Bearer x"))
    expect((yield* stranger.answer)?.text).toBe('{"error":"Unauthorized"}')
  })
}
