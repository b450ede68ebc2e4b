/** The requests of the client of sessions over HTTP, with a gateway that does what the test says. */
import { describe, expect, it, vi } from "vitest"
import {
  AnswerLost,
  BadRequest,
  ConnectionClosed,
  ConnectionFailed,
  Forbidden,
  makeSessions,
  NotFound,
  RequestRefused,
  ServiceUnavailable,
  type Sessions,
  TokenUnavailable,
  Unauthorized
} from "../../src/Client/Client.ts"
import { failing, failure, range, until } from "./Harness.ts"
import { session } from "./ScriptedGateway.ts"
import { type Asked, ScriptedHttp, withHttp } from "./ScriptedHttp.ts"

const id = "a/b"
const found = (asked: Asked) => asked.answer(200, { session })
const accepted = (asked: Asked) => asked.answer(200, { turnId: "t1" })
const done = (asked: Asked) => asked.answer(204)

/** A call, the request that it is, how that is answered, and what the call returns. */
const calls: ReadonlyArray<
  readonly [(sessions: Sessions) => Promise<unknown>, string, unknown, (asked: Asked) => void, unknown]
> = [
  [s => s.create("echo", { title: "mine" }), "POST ", { agentType: "echo", title: "mine" }, found, session],
  [s => s.get(id), "GET /a%2Fb", undefined, found, session],
  [s => s.start(id, { secrets: { KEY: "x" } }), "POST /a%2Fb/start", { secrets: { KEY: "x" } }, found, session],
  [s => s.start(id), "POST /a%2Fb/start", {}, found, session],
  [s => s.stop(id), "POST /a%2Fb/stop", undefined, found, session],
  [s => s.delete(id), "DELETE /a%2Fb", undefined, done, undefined],
  [
    s => s.send(id, "hello", { clientMessageId: "m 1" }),
    "POST /a%2Fb/messages",
    { content: "hello" },
    accepted,
    { turnId: "t1", clientMessageId: "m 1" }
  ],
  [s => s.answer(id, "q", { any: 1 }), "POST /a%2Fb/answers", { requestId: "q", answer: { any: 1 } }, done, undefined],
  [s => s.interrupt(id), "POST /a%2Fb/interrupt", {}, accepted, "t1"],
  [s => s.interrupt(id, { turnId: "t" }), "POST /a%2Fb/interrupt", { turnId: "t" }, accepted, "t1"],
  [s => s.connect(), "GET ?limit=1", undefined, asked => asked.answer(200, { sessions: [] }), undefined]
]

describe("over HTTP, a call", () => {
  it("is a request, and returns its answer", () =>
    withHttp(async (gateway, sessions) => {
      for (const [index, [call, line, body, answer, result]] of calls.entries()) {
        const pending = call(sessions)
        const asked = await gateway.request(index + 1)
        expect([asked.line, asked.body ?? undefined]).toEqual([line, body])
        expect(asked.headers.get("authorization")).toBe("Bearer token")
        const key = asked.headers.get("idempotency-key")
        expect(key !== null).toBe(line.endsWith("/messages") || line.endsWith("/answers"))
        answer(asked)
        expect(await pending).toEqual(result)
      }
      expect(gateway.asked[6]!.headers.get("idempotency-key")).toBe("m 1")
      expect(gateway.statuses).toEqual(["connected"])
    }))

  it("reads lists page by page", () =>
    withHttp(async (gateway, sessions) => {
      const pages: Array<number> = []
      const reading = (async () => {
        for await (const { sessions: page } of sessions.list({ limit: 2 })) pages.push(page.length)
      })()
      ;(await gateway.request(1)).answer(200, { sessions: [session, session], cursor: "c" })
      ;(await gateway.request(2)).answer(200, { sessions: [session] })
      await reading
      expect([pages, gateway.asked.map(({ line }) => line)]).toEqual([
        [2, 1],
        ["GET ?limit=2", "GET ?limit=2&cursor=c"]
      ])
    }))

  it("whose answer is lost is repeated where that changes nothing, and else fails", () =>
    withHttp(async (gateway, sessions) => {
      const sent = sessions.send("s", "hello")
      const first = await gateway.request(1)
      first.lose()
      const second = await gateway.retried(1, 2)
      const key = first.headers.get("idempotency-key")
      expect(key).toMatch(/^[0-9a-f]{32}$/)
      expect([second.line, second.body, second.headers.get("idempotency-key")]).toEqual([first.line, first.body, key])
      // The answer of a proxy does not say what the gateway did.
      second.answer(502, { reason: "no" })
      accepted(await gateway.retried(2, 3))
      expect(await sent).toEqual({ turnId: "t1", clientMessageId: key })
      expect(gateway.statuses).toEqual(["disconnected", "disconnected", "connected"])

      const calls = [sessions.create("echo"), sessions.delete("s"), sessions.interrupt("s")].map(failing)
      await until(() => gateway.asked.length === 6)
      gateway.asked[3]!.lose()
      gateway.asked[4]!.answer(504, { reason: "late" })
      gateway.asked[5]!.lose()
      for (const error of await Promise.all(calls)) expect(error).toBeInstanceOf(AnswerLost)
      // An answer without the id of a request is not one of the gateway.
      const create = failing(sessions.create("echo"))
      ;(await gateway.request(7)).refuse(503, { "retry-after": "1", "x-request-id": "" })
      expect(await create).toBeInstanceOf(AnswerLost)
      expect(gateway.asked.length).toBe(7)
    }))

  it("that is idempotent is repeated when the gateway says", () =>
    withHttp(async (gateway, sessions) => {
      const call = sessions.start("s")
      ;(await gateway.request(1)).refuse(503, { "retry-after": "7" })
      await until(() => gateway.pauses.length === 1)
      expect(gateway.pauses[0]).toBeGreaterThanOrEqual(7000)
      gateway.clock.advance(6999)
      expect(gateway.asked.length).toBe(1)
      found(await gateway.retried(1, 2))
      expect(await call).toEqual(session)
    }))

  it("that is not idempotent is not repeated after a 503: a store that is unavailable may have carried it out", () =>
    withHttp(async (gateway, sessions) => {
      const calls = [() => sessions.create("echo"), () => sessions.delete("s"), () => sessions.interrupt("s")]
      for (const [index, call] of calls.entries()) {
        const failed = failing(call())
        ;(await gateway.request(index + 1)).refuse(503, { "retry-after": "1" })
        expect(await failed).toBeInstanceOf(ServiceUnavailable)
      }
      expect(gateway.asked.length).toBe(3)
    }))

  const refusals: ReadonlyArray<readonly [number, string, boolean]> = [
    [400, "bad_request", false],
    [404, "not_found", false],
    [409, "conflict", false],
    [413, "too_large", false],
    [500, "internal", false],
    [502, "upstream_error", false],
    [502, "upstream_error", true],
    [503, "upstream_unavailable", false],
    [504, "timeout", true]
  ]

  it.each(refusals)("that is answered %s fails with the code %s", (status, code, retryable) =>
    withHttp(async (gateway, sessions) => {
      const call = failing(sessions.send("s", "hello"))
      ;(await gateway.request(1)).refuse(status, retryable ? { "retry-after": "1" } : {})
      const error = await call
      expect(error).toBeInstanceOf(RequestRefused)
      expect(error).toMatchObject({ code, retryable, traceId: "r-1", message: `refused with ${status}` })
      expect(gateway.statuses).toEqual(["connected"])
    })
  )

  it("fails where there is no such route or no access, or the answer is not one", () =>
    withHttp(async (gateway, sessions) => {
      const answers: ReadonlyArray<readonly [(asked: Asked) => void, unknown]> = [
        [asked => asked.refuse(404), NotFound],
        [asked => asked.refuse(403), Forbidden],
        [asked => asked.refuse(401), Unauthorized]
      ]
      for (const [index, [answer, Class]] of answers.entries()) {
        const call = failing(sessions.connect())
        answer(await gateway.request(index + 1))
        expect(await call).toBeInstanceOf(Class)
      }
      const call = sessions.get("s")
      ;(await gateway.request(4)).answer(200, { portal: "Log in" })
      found(await gateway.retried(1, 5))
      expect(await call).toEqual(session)
    }))

  it("is repeated with a new token after 401, once", () =>
    withHttp(async gateway => {
      let tokens = 0
      const sessions = gateway.client({ token: () => `token-${++tokens}` })
      const call = sessions.create("echo")
      ;(await gateway.request(1)).refuse(401)
      const second = await gateway.retried(1, 2)
      expect(second.headers.get("authorization")).toBe("Bearer token-2")
      found(second)
      expect(await call).toEqual(session)
      const refused = failing(sessions.get("s"))
      ;(await gateway.request(3)).refuse(401)
      ;(await gateway.retried(2, 4)).refuse(401)
      expect(await refused).toBeInstanceOf(Unauthorized)
    }))

  it("ends with its time limit, its signal and the client", () =>
    withHttp(async gateway => {
      const sessions = gateway.client({ timeoutMs: 5000 })
      const late = failing(sessions.get("s"))
      const asked = await gateway.request(1)
      gateway.clock.advance(5000)
      expect(await late).toMatchObject({ _tag: "ConnectionFailed", isTimeout: true })
      expect(asked.isAborted).toBe(true)

      const busy = failing(sessions.get("s"))
      ;(await gateway.request(2)).refuse(503, { "retry-after": "60" })
      await until(() => gateway.pauses.length === 1)
      gateway.clock.advance(5000)
      expect(await busy).toBeInstanceOf(ServiceUnavailable)

      const ending = new AbortController()
      const reason = new Error("enough")
      const ended = failing(sessions.stop("s", { signal: ending.signal }))
      await gateway.request(3)
      ending.abort(reason)
      expect(await ended).toBe(reason)

      const closed = failing(sessions.get("s"))
      await gateway.request(4)
      sessions.close()
      expect(await closed).toMatchObject({ _tag: "ConnectionClosed", code: 1000 })
      for (const call of [sessions.get("s"), sessions.connect()]) {
        expect(await failure(call)).toBeInstanceOf(ConnectionClosed)
      }
      expect([gateway.asked.length, gateway.asked.every(({ isAborted }) => isAborted)]).toEqual([4, true])
    }))

  it("without a token or a service fails at the connection, and waits in a call", () =>
    withHttp(async gateway => {
      const without = gateway.client({ token: () => Promise.reject(new Error("offline")), timeoutMs: 5000 })
      expect(await failure(without.connect())).toBeInstanceOf(TokenUnavailable)
      const call = failing(without.get("s"))
      await until(() => gateway.pauses.length === 1)
      gateway.clock.advance(5000)
      expect(await call).toBeInstanceOf(TokenUnavailable)
      const connecting = failing(gateway.client().connect())
      ;(await gateway.request(1)).lose()
      expect(await connecting).toBeInstanceOf(ConnectionFailed)
    }))

  it("is refused if HTTP cannot carry it", () =>
    withHttp(async (gateway, sessions) => {
      for (const call of [sessions.listFiles("s"), sessions.readFile("s", "a"), sessions.fileHistory("s", "a")]) {
        const error = await failure(call)
        expect(error).toBeInstanceOf(BadRequest)
        expect(String(error)).toContain("needs a WebSocket")
      }
      for (const clientMessageId of ["", " a", "é", "a\nb", "x".repeat(257)]) {
        expect(await failure(sessions.send("s", "hi", { clientMessageId }))).toBeInstanceOf(BadRequest)
      }
      for (const id of ["", ".", ".."]) expect(await failure(sessions.get(id))).toBeInstanceOf(BadRequest)
      expect(String(await failure(sessions.send("s", "ü".repeat(600_000))))).toContain("the limit is 1048576")
      const calls = range(1, 20).map(() => failing(sessions.send("s", "x".repeat(1_000_000))))
      for (const error of await Promise.all(calls.slice(16))) expect(String(error)).toContain("the limit is 16777216")
      expect(gateway.asked.length).toBe(16)
      sessions.close()
      for (const error of await Promise.all(calls)) expect(error).toBeInstanceOf(Error)
    }))

  it("needs no WebSocket, and goes where the gateway is", async () => {
    vi.stubGlobal("WebSocket", undefined)
    try {
      const gateway = new ScriptedHttp()
      const { fetch } = gateway
      const sessions = makeSessions({ baseUrl: "ws://host/agents/", path: "/v1", transport: "http", fetch })
      const call = sessions.get("s")
      const asked = await gateway.request(1)
      expect([asked.url.href, asked.headers.get("authorization")]).toEqual(["http://host/agents/v1/sessions/s", null])
      found(asked)
      expect(await call).toEqual(session)
    } finally {
      vi.unstubAllGlobals()
    }
  })
})
