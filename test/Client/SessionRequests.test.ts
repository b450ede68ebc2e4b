import { describe, expect, it } from "vitest"
import {
  AnswerLost,
  BadRequest,
  ConnectionClosed,
  ConnectionFailed,
  RequestRefused,
  ServiceUnavailable
} from "../../src/Client/Client.ts"
import { failing, failure, passUntil, range, until } from "./Harness.ts"
import { got, session, withGateway } from "./ScriptedGateway.ts"

describe("a request", () => {
  it("that was sent when the connection was lost is repeated where that changes nothing, and else fails", () =>
    withGateway(async (gateway, sessions) => {
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
    withGateway(async (gateway, sessions) => {
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
    withGateway(async (gateway, sessions) => {
      const large = await failure(sessions.send("s", "ü".repeat(600_000)))
      expect(large).toBeInstanceOf(BadRequest)
      expect(String(large)).toContain("the limit is 1048576")
      const calls = range(1, 20).map(() => failing(sessions.send("s", "x".repeat(1_000_000))))
      const refused = await Promise.all(calls.slice(16))
      for (const error of refused) expect(String(error)).toContain("the limit is 16777216")
      sessions.close()
      for (const error of await Promise.all(calls.slice(0, 16))) expect(error).toBeInstanceOf(ConnectionClosed)
      expect(await failure(sessions.get("s"))).toMatchObject({ _tag: "ConnectionClosed", code: 1000 })
      await until(() => gateway.connections.every(({ isClosed }) => isClosed) && gateway.clock.timers === 0)
    }))

  it("reads lists page by page", () =>
    withGateway(async (gateway, sessions) => {
      const pages: Array<number> = []
      const reading = (async () => {
        const options = { limit: 2, order: "activity", waiting: true } as const
        for await (const { sessions: page } of sessions.list(options)) pages.push(page.length)
      })()
      const accepted = await gateway.requested("list_sessions")
      accepted.answer("list_sessions", { type: "session_list", sessions: [session, session], cursor: "c" })
      await until(() => accepted.frames.length === 2)
      const request = { type: "list_sessions", limit: 2, order: "activity", waiting: true }
      expect(accepted.frames.map(({ id, ...frame }) => frame)).toEqual([request, { ...request, cursor: "c" }])
      accepted.answer("list_sessions", { type: "session_list", sessions: [session] })
      await reading
      expect(pages).toEqual([2, 1])
    }))
})
