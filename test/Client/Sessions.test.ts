/** Connections and requests of the client of sessions, with a gateway that does what the test says. */
import { describe, expect, it, vi } from "vitest"
import {
  AnswerLost,
  BadRequest,
  ConnectionClosed,
  ConnectionFailed,
  Forbidden,
  InvalidResponse,
  makeSessions,
  RequestRefused,
  ServiceUnavailable,
  type SessionsOptions,
  TokenUnavailable,
  Unauthorized
} from "../../src/Client/Client.ts"
import { closeCodes } from "../../src/Gateway/Protocol/CloseCode.ts"
import { passUntil, randomBy, range, until } from "./Harness.ts"
import { ScriptedGateway, session, withGateway } from "./ScriptedGateway.ts"

const failure = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    value => expect.fail(`succeeded with ${JSON.stringify(value)}`),
    error => error
  )

/** Begins a call whose failure is looked at later. */
const failing = (promise: Promise<unknown>): Promise<unknown> => promise.catch(error => error)

const got = { type: "session", session } as const

describe("a connection", () => {
  it("is made with the first call, and shared by all", () =>
    withGateway(async gateway => {
      const sessions = gateway.client()
      expect(gateway.handshakes).toBe(0)
      const calls = [sessions.get("s"), sessions.get("t")]
      await until(() => gateway.last?.ofType("get_session").length === 2)
      for (const { id } of gateway.last.frames) gateway.last.send({ ...got, id })
      expect(await Promise.all(calls)).toEqual([session, session])
      expect([gateway.handshakes, gateway.statuses]).toEqual([1, ["connected"]])
      expect(gateway.last.handshake.headers.authorization).toBe("Bearer token")
    }))

  it("has the token as a subprotocol in browsers, and none where there is none", () =>
    withGateway(async gateway => {
      class BrowserWebSocket extends WebSocket {
        constructor(url: string, protocols: unknown) {
          if (!Array.isArray(protocols)) throw new DOMException("Invalid subprotocol", "SyntaxError")
          super(url, protocols)
        }
      }
      await gateway.client({ WebSocket: BrowserWebSocket, token: "a.b.c" }).connect()
      expect(gateway.last.handshake.headers["sec-websocket-protocol"]).toMatch(/^causeway\.v1, ?bearer\.a\.b\.c$/)
      await gateway.client({ WebSocket: BrowserWebSocket, token: "" }).connect()
      expect(gateway.last.handshake.headers["sec-websocket-protocol"]).toBe("causeway.v1")
      const bad = gateway.client({ WebSocket: BrowserWebSocket, token: "a b" })
      expect(await failure(bad.connect())).toBeInstanceOf(BadRequest)
    }))

  const reconnecting: ReadonlyArray<readonly [number | undefined, number]> = [
    [closeCodes.goingAway.code, 0],
    [closeCodes.slowConsumer.code, 0],
    [closeCodes.idle.code, 0],
    [closeCodes.rateLimited.code, 5000],
    [4444, 0],
    [1000, 0],
    [1011, 0],
    [undefined, 0]
  ]

  it.each(reconnecting)("reconnects after the close code %s, not within %s ms", (code, least) =>
    withGateway(async gateway => {
      const sessions = gateway.client()
      const call = sessions.get("s")
      const first = await gateway.requested("get_session")
      if (code === undefined) first.socket.terminate()
      else first.socket.close(code)
      await until(() => gateway.pauses.length === 1)
      expect(gateway.pauses[0]).toBeGreaterThanOrEqual(least)
      await gateway.connected(2)
      ;(await gateway.requested("get_session", 2)).answer("get_session", got)
      expect(await call).toEqual(session)
    })
  )

  const final = [
    ...[closeCodes.protocolError, closeCodes.invalidText, closeCodes.messageTooBig, closeCodes.protocol].map(
      ({ code }) => code
    ),
    4500,
    4999
  ]

  it.each(final)("does not reconnect after the close code %s", code =>
    withGateway(async gateway => {
      const sessions = gateway.client()
      const call = failing(sessions.get("s"))
      ;(await gateway.requested("get_session")).socket.close(code, "why")
      const error = await call
      expect(error).toBeInstanceOf(ConnectionClosed)
      expect(error).toMatchObject({ code, message: `The gateway closed the connection: ${code} why` })
      expect(await failure(sessions.get("s"))).toBe(error)
      expect(await failure(sessions.connect())).toBe(error)
      expect(await failure(sessions.subscribe("s")[Symbol.asyncIterator]().next())).toBe(error)
      expect([gateway.handshakes, gateway.clock.timers]).toEqual([1, 0])
    })
  )

  it("reconnects with a new token after 4501, and ends if there is no other token", () =>
    withGateway(async gateway => {
      let asked = 0
      const sessions = gateway.client({ token: async () => `token-${++asked}` })
      const call = sessions.get("s")
      ;(await gateway.requested("get_session")).socket.close(4501, "token_expired")
      await gateway.connected(2)
      const second = await gateway.requested("get_session", 2)
      expect(second.handshake.headers.authorization).toBe("Bearer token-2")
      second.answer("get_session", got)
      expect(await call).toEqual(session)
      // The second token was good, so that another one may be asked for.
      const again = failing(sessions.get("s"))
      await until(() => second.frames.length === 2)
      second.socket.close(4501)
      await gateway.connected(3)
      ;(await gateway.requested("get_session", 3)).socket.close(4501)
      expect(await again).toBeInstanceOf(Unauthorized)
      expect(asked).toBe(3)

      const fixed = gateway.client({ token: "fixed" })
      const last = failing(fixed.get("s"))
      ;(await gateway.requested("get_session", 4)).socket.close(4501)
      expect(await last).toBeInstanceOf(Unauthorized)
      expect(gateway.handshakes).toBe(4)
    }))

  it("says why a handshake is refused, and whether it tries again", () =>
    withGateway(async gateway => {
      const refusals: ReadonlyArray<readonly [number, unknown, string?]> = [
        [401, Unauthorized],
        [403, Forbidden],
        [404, InvalidResponse, "<h1>Not here</h1>"]
      ]
      for (const [status, Class, body] of refusals) {
        gateway.refusal = { status, ...(body !== undefined && { body }) }
        const sessions = gateway.client()
        expect(await failure(sessions.get("s"))).toBeInstanceOf(Class)
        const { handshakes } = gateway
        expect(await failure(sessions.get("s"))).toBeInstanceOf(Class)
        expect(gateway.handshakes).toBe(handshakes)
      }
      gateway.refusal = { status: 401 }
      let asked = 0
      const token = () => `token-${++asked}`
      const renewing = failing(gateway.client({ token }).get("s"))
      await until(() => gateway.pauses.length === 1)
      gateway.clock.advance(1000)
      expect(await renewing).toBeInstanceOf(Unauthorized)
      // The handshake and the question why it was refused are one try each.
      expect(asked).toBe(4)

      gateway.refusal = { status: 503, headers: { "retry-after": "7" } }
      const sessions = gateway.client()
      expect(await failure(sessions.connect())).toBeInstanceOf(ServiceUnavailable)
      expect(gateway.pauses.at(-1)).toBeGreaterThanOrEqual(7000)
      gateway.refusal = undefined
      const call = sessions.get("s")
      await gateway.connected(1)
      ;(await gateway.requested("get_session")).answer("get_session", got)
      expect(await call).toEqual(session)
    }))

  it("is tried again in pauses that grow and are spread, while something waits for it", async () => {
    const pausesOf = async (random?: () => number) => {
      const gateway = new ScriptedGateway(random)
      let pauses: ReadonlyArray<number> = []
      await gateway.run(async gateway => {
        gateway.refusal = { status: 503 }
        const sessions = gateway.client({ timeoutMs: 1e9 })
        const call = failing(sessions.get("s"))
        for (const tries of range(1, 7)) {
          await until(() => gateway.pauses.length === tries)
          gateway.clock.advance(30_000)
        }
        pauses = gateway.pauses.slice(0, 7)
        sessions.close()
        expect(await call).toBeInstanceOf(ConnectionClosed)
        await until(() => gateway.clock.timers === 0)
      })
      return pauses
    }
    const bounds = [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]
    expect((await pausesOf()).map(pause => Math.ceil(pause / 100) * 100)).toEqual(bounds)
    const [one, other] = [await pausesOf(randomBy(1)), await pausesOf(randomBy(2))]
    for (const [index, bound] of bounds.entries()) {
      expect(one[index]).toBeLessThan(bound)
      expect(one[index]).not.toBe(other[index])
    }
  })

  it("that has fallen silent is found by a ping, and replaced", () =>
    withGateway(async gateway => {
      const { clock } = gateway
      const sessions = gateway.client()
      await sessions.connect()
      const first = gateway.last
      for (let round = 0; round < 5; round++) {
        clock.advance(25_000)
        // The answer to the ping counts as a sign of life.
        const call = sessions.get("s")
        await until(() => first.frames.length === round + 1)
        first.answer("get_session", got)
        await call
      }
      first.answersPings = false
      clock.advance(25_000)
      await until(() => first.pings === 1)
      clock.advance(9999)
      expect(gateway.statuses).toEqual(["connected"])
      const call = sessions.get("s")
      clock.advance(1)
      await until(() => gateway.statuses.length === 2)
      await gateway.connected(2)
      ;(await gateway.requested("get_session", 2)).answer("get_session", got)
      expect(await call).toEqual(session)
      await until(() => first.isClosed)
    }))

  it("is given up where the handshake takes too long", () =>
    withGateway(async gateway => {
      const sessions = gateway.client({ token: () => new Promise<string>(() => {}) })
      const call = failing(sessions.connect())
      gateway.clock.advance(15_000)
      expect(await call).toMatchObject({ _tag: "ConnectionFailed", isTimeout: true })
      const cause = new Error("offline")
      const without = gateway.client({ token: () => Promise.reject(cause) })
      expect(await failure(without.connect())).toBeInstanceOf(TokenUnavailable)
    }))

  it("ends with the client, and leaves nothing behind", () =>
    withGateway(async gateway => {
      const sessions = gateway.client()
      const call = failing(sessions.get("s"))
      const accepted = await gateway.requested("get_session")
      sessions.close()
      expect(await call).toMatchObject({ _tag: "ConnectionClosed", code: 1000 })
      expect(await failure(sessions.get("s"))).toBeInstanceOf(ConnectionClosed)
      await until(() => accepted.isClosed)
      await until(() => gateway.clock.timers === 0)
    }))
})

describe("a request", () => {
  it("that was sent when the connection was lost is repeated where that changes nothing, and else fails", () =>
    withGateway(async gateway => {
      const sessions = gateway.client()
      const repeated = [
        sessions.get("s"),
        sessions.send("s", "hello"),
        sessions.send("s", "again", { clientMessageId: "mine" }),
        sessions.answer("s", "q", { any: "thing" }),
        sessions.start("s", { secrets: { KEY: "secret" } }),
        sessions.stop("s"),
        sessions.readFile("s", "a.md")
      ]
      const failed = [
        failing(sessions.create("echo", { title: "mine" })),
        failing(sessions.delete("s")),
        failing(sessions.interrupt("s")),
        failing(sessions.interrupt("s", { turnId: "t" }))
      ]
      await until(() => gateway.last?.frames.length === 11)
      const first = gateway.last
      first.socket.terminate()
      for (const error of await Promise.all(failed)) expect(error).toBeInstanceOf(AnswerLost)
      await gateway.connected(2)
      await until(() => gateway.last.frames.length === 7)
      // In the same order, under the same ids.
      expect(gateway.last.frames).toEqual(first.frames.slice(0, 7))
      const ids = gateway.last.frames.flatMap(({ clientMessageId }) => clientMessageId ?? [])
      expect(ids).toEqual([expect.stringMatching(/^[0-9a-f]{32}$/), "mine", expect.stringMatching(/^[0-9a-f]{32}$/)])
      for (const { id, type } of gateway.last.frames) {
        if (type === "send_message" || type === "answer") gateway.last.send({ type: "accepted", id, turnId: "t1" })
        else if (type !== "read_file") gateway.last.send({ ...got, id })
        else gateway.last.send({ type: "file_content", id, path: "a.md", content: "x", encoding: "utf-8" })
      }
      expect(await Promise.all(repeated)).toEqual([
        session,
        { turnId: "t1", clientMessageId: ids[0] },
        { turnId: "t1", clientMessageId: "mine" },
        undefined,
        session,
        session,
        { path: "a.md", content: "x", encoding: "utf-8" }
      ])
    }))

  it("that was not sent waits for the next connection, whatever it does", () =>
    withGateway(async gateway => {
      gateway.refusal = { status: 503 }
      const sessions = gateway.client()
      const call = sessions.create("echo")
      await until(() => gateway.pauses.length === 1)
      gateway.refusal = undefined
      await gateway.connected(1)
      ;(await gateway.requested("create_session")).answer("create_session", { type: "session_created", session })
      expect(await call).toEqual(session)
    }))

  it("fails as the gateway says", () =>
    withGateway(async gateway => {
      const sessions = gateway.client()
      const call = failing(sessions.get("s"))
      ;(await gateway.requested("get_session")).refuse("get_session", "not_found")
      const error = await call
      expect(error).toBeInstanceOf(RequestRefused)
      expect(error).toMatchObject({ code: "not_found", retryable: false, traceId: "t".repeat(32) })
      const other = failing(sessions.stop("s"))
      ;(await gateway.requested("stop_session")).answer("stop_session", { type: "unsubscribed", sessionId: "s" })
      expect(await other).toMatchObject({ _tag: "ConnectionFailed", message: expect.stringContaining("unsubscribed") })
    }))

  it("ends with its time limit and its signal; a late answer is ignored", () =>
    withGateway(async gateway => {
      const sessions = gateway.client({ timeoutMs: 5000 })
      const late = failing(sessions.get("s"))
      const accepted = await gateway.requested("get_session")
      gateway.clock.advance(5000)
      expect(await late).toMatchObject({ _tag: "ConnectionFailed", isTimeout: true })
      const ending = new AbortController()
      const reason = new Error("enough")
      const ended = failing(sessions.stop("s", { signal: ending.signal }))
      ending.abort(reason)
      expect(await ended).toBe(reason)
      expect(await failure(sessions.stop("s", { signal: ending.signal }))).toBe(reason)
      accepted.answer("get_session", got)
      for (const frame of ["not json", "[]", "null", "1", '{"type":"surprise"}', '{"seq":"x"}']) {
        accepted.socket.send(frame)
      }
      const next = sessions.get("s")
      await until(() => accepted.ofType("get_session").length === 2)
      accepted.answer("get_session", got)
      expect(await next).toEqual(session)
      expect(gateway.statuses).toEqual(["connected"])
    }))

  it("does not time out while events and other answers are received, but does after ten times its limit", () =>
    withGateway(async gateway => {
      const { clock } = gateway
      const sessions = gateway.client({ timeoutMs: 5000 })
      const queued = failing(sessions.stop("s"))
      const accepted = await gateway.requested("stop_session")
      const [stop] = accepted.ofType("stop_session")
      let asked = 0
      /** Receives an event and an answer every 4 seconds. */
      const receive = async (times: number) => {
        for (let end = asked + times; asked < end; ) {
          const other = sessions.get("s")
          await until(() => accepted.ofType("get_session").length > asked)
          asked++
          accepted.events([asked])
          accepted.answer("get_session", got)
          await other
          clock.advance(4000)
        }
      }
      await receive(6)
      accepted.send({ ...got, id: stop!.id })
      expect(await queued).toEqual(session)
      const lost = failing(sessions.stop("s"))
      await until(() => accepted.ofType("stop_session").length === 2)
      await receive(13)
      expect(await lost).toMatchObject({ _tag: "ConnectionFailed", isTimeout: true })
    }))

  it("times out while only pings are answered", () =>
    withGateway(async gateway => {
      const { clock } = gateway
      let received = 0
      class Counting extends WebSocket {
        constructor(url: string, options: never) {
          super(url, options)
          this.addEventListener("message", () => received++)
        }
      }
      const sessions = gateway.client({ timeoutMs: 60_000, WebSocket: Counting })
      const late = failing(sessions.get("s"))
      await gateway.requested("get_session")
      for (const pong of [1, 2]) {
        clock.advance(25_000)
        await until(() => received === pong)
      }
      clock.advance(10_000)
      expect(await late).toMatchObject({ _tag: "ConnectionFailed", isTimeout: true })
    }))

  it("without a connection fails with the error of the connection", () =>
    withGateway(async gateway => {
      gateway.refusal = { status: 503 }
      const sessions = gateway.client({ timeoutMs: 5000 })
      const call = failing(sessions.get("s"))
      let isOver = false
      void call.then(() => {
        isOver = true
      })
      await passUntil(gateway.clock, () => isOver)
      expect(await call).toBeInstanceOf(ServiceUnavailable)
      let url = ""
      await withGateway(async other => {
        url = other.url
      })
      const error = await failure(gateway.client({ baseUrl: url }).connect())
      expect(error).toBeInstanceOf(ConnectionFailed)
      expect(String(error)).toContain(`ECONNREFUSED ${new URL(url).host}`)
    }))

  it("waits its turn: the gateway's limits of requests in flight and in a second are kept", () =>
    withGateway(async gateway => {
      const { clock } = gateway
      const sessions = gateway.client()
      const calls = range(1, 200).map(() => sessions.get("s"))
      await gateway.requested("get_session")
      const accepted = gateway.last
      let answered = 0
      const answer = () => {
        for (; answered < accepted.frames.length; answered++) {
          accepted.send({ ...got, id: accepted.frames[answered]!.id })
        }
      }
      await until(() => accepted.frames.length === 48)
      const next = failing(sessions.get("s"))
      answer()
      await until(() => accepted.frames.length === 80)
      answer()
      clock.advance(999)
      expect(accepted.frames.length).toBe(80)
      await passUntil(clock, () => {
        answer()
        return answered === 201
      })
      expect(await Promise.all(calls)).toHaveLength(200)
      expect(await next).toEqual(session)
    }))

  it("that is too large is refused, as are more bytes than may wait", () =>
    withGateway(async gateway => {
      const sessions = gateway.client()
      const large = await failure(sessions.send("s", "ü".repeat(600_000)))
      expect(large).toBeInstanceOf(BadRequest)
      expect(String(large)).toContain("the limit is 1048576")
      const calls = range(1, 20).map(() => failing(sessions.send("s", "x".repeat(1_000_000))))
      const refused = await Promise.all(calls.slice(16))
      for (const error of refused) expect(String(error)).toContain("the limit is 16777216")
      sessions.close()
      for (const error of await Promise.all(calls.slice(0, 16))) expect(error).toBeInstanceOf(ConnectionClosed)
    }))

  it("reads lists page by page", () =>
    withGateway(async gateway => {
      const sessions = gateway.client()
      const pages: Array<number> = []
      const reading = (async () => {
        for await (const { sessions: page } of sessions.list({ limit: 2 })) pages.push(page.length)
      })()
      const accepted = await gateway.requested("list_sessions")
      accepted.answer("list_sessions", { type: "session_list", sessions: [session, session], cursor: "c" })
      await until(() => accepted.frames.length === 2)
      expect(accepted.frames.map(({ cursor, limit }) => [limit, cursor])).toEqual([
        [2, undefined],
        [2, "c"]
      ])
      accepted.answer("list_sessions", { type: "session_list", sessions: [session] })
      await reading
      expect(pages).toEqual([2, 1])
    }))
})

describe("the options", () => {
  it("must give a WebSocket where the host has none", () => {
    vi.stubGlobal("WebSocket", undefined)
    try {
      expect(() => makeSessions({ baseUrl: "http://localhost" })).toThrow("the option WebSocket must give one")
    } finally {
      vi.unstubAllGlobals()
    }
  })

  it("name where the gateway is", () =>
    withGateway(async gateway => {
      const host = new URL(gateway.url).host
      const places: ReadonlyArray<readonly [Partial<SessionsOptions>, string]> = [
        [{}, "/ws"],
        [{ baseUrl: `ws://${host}` }, "/ws"],
        [{ baseUrl: `ws://${host}/ws`, path: "" }, "/ws"],
        [{ baseUrl: `http://${host}/agents/` }, "/agents/ws"],
        [{ path: "/gateway" }, "/gateway"]
      ]
      for (const [options, path] of places) {
        await gateway.client(options).connect()
        expect(gateway.last.handshake.url).toBe(path)
      }
    }))
})
