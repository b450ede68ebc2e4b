/** Which handshakes are accepted, over real sockets: origins of pages, invalid requests, the limit of connections. */
import { connect as connectRaw } from "node:net"
import { describe, expect } from "@effect/vitest"
import { Effect } from "effect"
import { connect, live, until } from "./Fixture.ts"
import { bearer, sign, statusOf, withSecret } from "./Tenants.ts"

const withOrigin = { authentication: { ...withSecret, origins: ["https://app.example.com"] } }

/** What is answered to the lines of a request. */
const answerTo = (port: number, first: string, ...fields: ReadonlyArray<string>) =>
  Effect.async<string>(resume => {
    const socket = connectRaw(port, "127.0.0.1", () =>
      socket.write([first, `Host: 127.0.0.1:${port}`, ...fields, "", ""].join("\r\n"))
    )
    let text = ""
    socket.on("data", data => {
      text += data.toString()
      // The body is an object, and an accepted handshake has none.
      if (/^HTTP\/1.1 101|\}$/.test(text)) socket.destroy()
    })
    socket.on("error", () => undefined)
    socket.once("close", () => resume(Effect.succeed(text)))
  })

describe("The handshake", () => {
  live("in dev mode every client is the developer", function* ({ url }) {
    const client = yield* connect(url)
    const { session } = yield* client.get("session_created", { type: "create_session", agentType: "echo" })
    expect(session.tenant).toBe("dev")
    expect(yield* statusOf(url, bearer("whatever"))).toBe(101)
  })

  live("pages connect from their own host and allowed ones", withOrigin, function* ({ port, url }) {
    const token = yield* sign()
    const from = (origin: string) => statusOf(url, { headers: { authorization: `Bearer ${token}`, origin } })
    expect(yield* from("https://app.example.com")).toBe(101)
    expect(yield* from(`http://127.0.0.1:${port}`)).toBe(101)
    const strangers = [
      "https://evil.example.com",
      "http://app.example.com",
      "https://app.example.com.evil.example",
      "https://app.example.com:8443",
      `http://localhost:${port}`,
      "null",
      "file://",
      "rubbish"
    ]
    for (const origin of strangers) expect(yield* from(origin), origin).toBe(403)
  })

  live("in dev mode, without tokens, a page's own host must be this machine by address", function* ({ port, url }) {
    const from = (host: string, origin = `http://${host}`) => statusOf(url, { headers: { host, origin } })
    for (const host of [`localhost:${port}`, `127.0.0.1:${port}`, "127.8.9.10", `[::1]:${port}`, "LOCALHOST"]) {
      expect(yield* from(host), host).toBe(101)
    }
    const rebound = [
      `rebound.evil.example:${port}`,
      "localhost.evil.example",
      "127.0.0.1.evil.example",
      "192.168.1.5",
      "0.0.0.0",
      `[::2]:${port}`
    ]
    for (const host of rebound) expect(yield* from(host), host).toBe(403)
    expect(yield* from(`localhost:${port}`, "http://localhost:1")).toBe(403)
    expect(yield* statusOf(url, { headers: { host: "rebound.evil.example" } })).toBe(101)
  })

  live("an invalid handshake, and one during shutdown, gets an error", function* ({ draining, port, url }) {
    const answer = yield* Effect.promise(() => fetch(`http://127.0.0.1:${port}/ws`))
    expect(answer.status).toBe(500)
    expect(yield* Effect.promise(() => answer.json())).toMatchObject({ error: expect.stringContaining("WebSocket") })
    const posted = yield* Effect.promise(() => fetch(`http://127.0.0.1:${port}/ws`, { method: "POST" }))
    expect([posted.status, posted.headers.get("allow")]).toEqual([405, "GET, HEAD"])
    const raw = yield* answerTo(port, "GET /ws HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket")
    expect(raw).toMatch(/^HTTP\/1.1 500 /)
    expect(raw).toContain('{"error":"WebSocket upgrade failed: ')
    yield* draining.begin
    expect(yield* statusOf(url)).toBe(503)
  })

  live("a target in absolute form is accepted", function* ({ port }) {
    const statusLine = (target: string, ...fields: ReadonlyArray<string>) =>
      Effect.map(answerTo(port, `GET ${target} HTTP/1.1`, ...fields), text => text.split("\r\n", 1)[0]!)
    const handshake = [
      "Connection: Upgrade",
      "Upgrade: websocket",
      "Sec-WebSocket-Version: 13",
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    ]
    const origin = `http://127.0.0.1:${port}`
    for (const target of ["/ws", "/ws?a=/ws", `${origin}/ws`, `${origin}/ws?a=1`, `HTTP://localhost/ws`]) {
      expect([target, yield* statusLine(target, ...handshake)]).toEqual([target, "HTTP/1.1 101 Switching Protocols"])
      expect([target, yield* statusLine(target)]).toEqual([target, "HTTP/1.1 500 Internal Server Error"])
    }
    for (const target of [`${origin}/wss`, `${origin}/other?/ws`, `${origin}/a/ws`, "/ws/"]) {
      expect([target, yield* statusLine(target, ...handshake)]).not.toEqual([
        target,
        "HTTP/1.1 101 Switching Protocols"
      ])
    }
  })

  live("a connection that cannot be made takes no slot", { socket: { connections: 1 } }, function* ({ socket, url }) {
    const upgrade = yield* socket.connect({
      headers: {},
      incoming: {
        ...{ authorization: undefined, upgradeProblem: undefined, credential: undefined },
        ...{ method: "GET", url: "/ws", headers: {}, remoteAddress: undefined }
      }
    })
    const fail = () => {
      throw new Error("a bug of the transport")
    }
    expect(() => upgrade.accept(fail)).toThrow("a bug of the transport")
    expect(yield* statusOf(url)).toBe(101)
  })

  live(
    "one connection too many is refused until another ends",
    { socket: { connections: 2 } },
    function* ({ socket, url }) {
      const first = yield* connect(url)
      yield* connect(url)
      expect(yield* statusOf(url)).toBe(503)
      first.socket.close()
      yield* first.closed
      yield* until(() => socket.connections() < 2)
      expect(yield* statusOf(url)).toBe(101)
    }
  )
})
