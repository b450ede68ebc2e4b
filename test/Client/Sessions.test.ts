/** The client of sessions: its connection and its options. */
import { describe, expect, it, vi } from "vitest"
import {
  BadRequest,
  ConnectionClosed,
  Forbidden,
  InvalidResponse,
  makeSessions,
  ServiceUnavailable,
  type SessionsOptions,
  TokenUnavailable,
  Unauthorized
} from "../../src/Client/Client.ts"
import { closeCodes } from "../../src/Gateway/Protocol/Codes.ts"
import { BrowserWebSocket, failing, failure, randomBy, range, until } from "./Harness.ts"
import { got, ScriptedGateway, session, withGateway } from "./ScriptedGateway.ts"

describe("a connection", () => {
  it("is made with the first call, and shared by all", () =>
    withGateway(async (gateway, sessions) => {
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
    withGateway(async (gateway, sessions) => {
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
    withGateway(async (gateway, sessions) => {
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
