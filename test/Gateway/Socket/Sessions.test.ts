/** Requests about sessions over the socket: their answers and failures, also for sessions of another tenant. */
import { describe, expect } from "@effect/vitest"
import { Effect } from "effect"
import { collected, socketsMade } from "../../Garbage.ts"
import { test } from "../../Tests.ts"
import { type Asked, codeOf, completeTurn, connect, createSession, make } from "./Fixture.ts"
import { ask, codes, shared } from "./Tenants.ts"

const ofSession = (sessionId: string): ReadonlyArray<Asked> => [
  { type: "get_session", sessionId },
  { type: "start_session", sessionId },
  { type: "stop_session", sessionId },
  { type: "delete_session", sessionId },
  { type: "subscribe", sessionId },
  { type: "unsubscribe", sessionId },
  { type: "send_message", sessionId, content: "hello" },
  { type: "interrupt_turn", sessionId },
  { type: "answer", sessionId, requestId: "q", answer: true },
  { type: "list_files", sessionId },
  { type: "read_file", sessionId, path: "README.md" },
  { type: "file_history", sessionId, path: "README.md" },
  { type: "file_at_iteration", sessionId, path: "README.md", iteration: 1 }
]

describe("Requests over the socket", () => {
  shared("a session is created as requested, and only the platform gets the secrets", function* ({ acme, simulator }) {
    const created = yield* acme.get("session_created", {
      type: "create_session",
      agentType: "coder",
      title: "Mine",
      deployment: { region: "north" },
      environment: { MODE: "fast" },
      secrets: { TOKEN: "very-secret-text" }
    })
    expect(created.session).toEqual({
      id: created.session.id,
      tenant: "acme",
      agentType: "coder",
      title: "Mine",
      state: "inactive",
      instanceId: null,
      createdAt: created.session.createdAt,
      updatedAt: created.session.createdAt,
      epoch: created.session.epoch,
      headSeq: 0,
      ...{ running: false, waiting: false, failed: false }
    })
    const { session } = yield* acme.get("session", { type: "start_session", sessionId: created.session.id })
    expect(session).toMatchObject({ state: "active", title: "Mine" })
    expect((yield* simulator.state).instances).toMatchObject([
      { agentType: "coder", deployment: { region: "north" }, environment: { MODE: "fast" }, secretNames: ["TOKEN"] }
    ])
    expect(JSON.stringify(acme.frames)).not.toContain("very-secret-text")
  })

  shared("sessions are listed page by page, newest first, without those of other tenants", function* ({ acme, evil }) {
    const first = yield* createSession(acme)
    yield* createSession(evil)
    const second = yield* createSession(acme)
    const newestFirst = [first, second].sort().reverse()
    const all = yield* acme.get("session_list", { type: "list_sessions" })
    expect(all.sessions.map(({ id }) => id)).toEqual(newestFirst)
    expect(all).not.toHaveProperty("cursor")
    const page = yield* acme.get("session_list", { type: "list_sessions", limit: 1 })
    expect(page.sessions.map(({ id }) => id)).toEqual(newestFirst.slice(0, 1))
    const rest = yield* acme.get("session_list", { type: "list_sessions", limit: 1, cursor: page.cursor! })
    expect(rest.sessions.map(({ id }) => id)).toEqual(newestFirst.slice(1))
    expect(rest).not.toHaveProperty("cursor")
    for (const cursor of ["?", "x", "A".repeat(5000)]) {
      const { error } = yield* acme.get("error", { type: "list_sessions", cursor })
      expect(error.code).toBe("bad_request")
    }
    expect((yield* acme.get("session", { type: "get_session", sessionId: second })).session.id).toBe(second)
  })

  shared("another tenant's session, and one that does not exist, is not_found", function* ({ acme, evil, simulator }) {
    const sessionId = yield* createSession(acme)
    for (const ghost of [sessionId, "0".repeat(36), "x".repeat(128)]) {
      const answers = yield* codes(evil, ofSession(ghost))
      expect(answers, JSON.stringify(ghost)).toEqual(answers.map(() => "not_found"))
    }
    for (const nonsense of ["../acme", `acme/sessions/${sessionId}`, "\u0000"]) {
      const [get] = yield* codes(evil, [{ type: "get_session", sessionId: nonsense }])
      expect(["not_found", "bad_request"]).toContain(get)
    }
    expect((yield* simulator.state).created).toBe(0)
    expect((yield* acme.get("session", { type: "get_session", sessionId })).session.state).toBe("inactive")
  })

  shared("a session starts once, stops, starts again, and is deleted", function* ({ acme, simulator }) {
    const sessionId = yield* createSession(acme)
    yield* acme.get("session", { type: "start_session", sessionId })
    for (const _ of [1, 2]) {
      const { session } = yield* acme.get("session", { type: "stop_session", sessionId })
      expect(session).toMatchObject({ state: "inactive", instanceId: null })
    }
    expect((yield* simulator.state).instances).toEqual([])
    yield* acme.get("session", { type: "start_session", sessionId })
    expect(yield* acme.ask({ type: "delete_session", sessionId })).toMatchObject({
      type: "session_deleted",
      sessionId
    })
    expect((yield* simulator.state).instances).toEqual([])
    expect(yield* codes(acme, ofSession(sessionId))).toEqual(ofSession(sessionId).map(() => "not_found"))
    expect(yield* acme.get("session_list", { type: "list_sessions" })).toMatchObject({ sessions: [] })
  })

  shared("requests that need an instance and do not start one say so", function* ({ acme }) {
    const sessionId = yield* createSession(acme)
    expect(
      yield* codes(acme, [
        { type: "interrupt_turn", sessionId },
        { type: "answer", sessionId, requestId: "q", answer: 1 }
      ])
    ).toEqual(["session_not_active", "session_not_active"])
    yield* acme.get("session", { type: "start_session", sessionId })
    expect(
      yield* codes(acme, [
        { type: "interrupt_turn", sessionId },
        { type: "interrupt_turn", sessionId, turnId: "none" },
        { type: "answer", sessionId, requestId: "q", answer: 1 }
      ])
    ).toEqual(["conflict", "conflict", "conflict"])
  })

  shared("a question waits for its answer, once", function* ({ acme }) {
    const sessionId = yield* createSession(acme)
    yield* acme.get("subscribed", { type: "subscribe", sessionId })
    const { turnId } = yield* acme.get("accepted", { type: "send_message", sessionId, content: "/ask" })
    const asked = yield* acme.untilEvent(sessionId, event => event.type === "question_requested")
    if (asked.type !== "question_requested") throw new Error(asked.type)
    const { requestId } = asked
    expect(yield* acme.ask({ type: "answer", sessionId, requestId, answer: "blue" })).toMatchObject({
      type: "accepted"
    })
    yield* acme.untilEvent(sessionId, event => event.type === "turn_completed" && event.turnId === turnId)
    const text = acme.events(sessionId).flatMap(event => (event.type === "text_delta" ? [event.text] : []))
    expect(text.join("")).toBe("answer: blue")
    expect(codeOf(yield* ask(acme, { type: "answer", sessionId, requestId, answer: "red" }))).toBe("conflict")
  })

  shared("a turn is interrupted, by its id or as the one in progress", function* ({ acme }) {
    const sessionId = yield* createSession(acme)
    yield* acme.get("subscribed", { type: "subscribe", sessionId })
    for (const named of [true, false]) {
      const { turnId } = yield* acme.get("accepted", { type: "send_message", sessionId, content: "/hang" })
      yield* acme.untilEvent(sessionId, event => event.type === "turn_started" && event.turnId === turnId)
      const interrupted = yield* acme.get("accepted", {
        type: "interrupt_turn",
        sessionId,
        ...(named ? { turnId: turnId! } : {})
      })
      expect(interrupted.turnId).toBe(turnId)
      yield* acme.untilEvent(sessionId, event => event.type === "turn_interrupted" && event.turnId === turnId)
    }
  })

  shared("files are listed and read, also at iterations, which starts the session", function* ({ acme, simulator }) {
    const sessionId = yield* createSession(acme)
    const { entries } = yield* acme.get("file_list", { type: "list_files", sessionId })
    expect(entries.map(({ path }) => path)).toContain("README.md")
    expect((yield* simulator.state).created).toBe(1)
    yield* acme.get("subscribed", { type: "subscribe", sessionId })
    yield* completeTurn(acme, sessionId, "/write a/b.txt first")
    yield* completeTurn(acme, sessionId, "/write a/b.txt second")
    const path = "a/b.txt"
    const now = yield* acme.get("file_content", { type: "read_file", sessionId, path })
    expect(now).toMatchObject({ path, content: "second", encoding: "utf-8" })
    const { iterations } = yield* acme.get("file_history_list", { type: "file_history", sessionId, path })
    expect(iterations).toHaveLength(2)
    expect(iterations[0]!.iteration).toBeLessThan(iterations[1]!.iteration)
    const then = yield* acme.get("file_content", {
      type: "file_at_iteration",
      sessionId,
      path,
      iteration: iterations[0]!.iteration
    })
    expect(then).toMatchObject({ path, content: "first" })
    const below = yield* acme.get("file_list", { type: "list_files", sessionId, path: "a", depth: 1 })
    expect(below.entries.map(({ path }) => path)).toEqual([path])
  })

  shared("invalid file requests, and those for no file, fail", function* ({ acme }) {
    const sessionId = yield* createSession(acme)
    const bad = ["/etc/passwd", "../secrets", "a/../../b", "a\u0000b"]
    expect(
      yield* codes(
        acme,
        bad.map(path => ({ type: "read_file", sessionId, path }))
      )
    ).toEqual(bad.map(() => "bad_request"))
    expect(yield* codes(acme, [{ type: "read_file", sessionId, path: "no/such.txt" }])).toEqual(["not_found"])
  })

  shared("without a platform nothing starts, and the answer says why", function* ({ acme, simulator }) {
    const sessionId = yield* createSession(acme)
    yield* simulator.inject({ operation: "create", fault: { kind: "status", status: 403 } })
    expect(yield* codes(acme, [{ type: "start_session", sessionId }])).toEqual(["upstream_error"])
    const { session } = yield* acme.get("session", { type: "get_session", sessionId })
    expect(session).toMatchObject({ state: "error", instanceId: null })
    yield* simulator.clear
    expect((yield* acme.get("session", { type: "start_session", sessionId })).session.state).toBe("active")
  })

  test.scopedLive("a session does not keep the connection of the client that started it in memory", function* () {
    const made = yield* socketsMade("server")
    const { start } = yield* make()
    const gateway = yield* start
    const sockets = yield* Effect.scoped(
      Effect.gen(function* () {
        const client = yield* connect(gateway.url)
        const sessionId = yield* createSession(client)
        yield* client.get("session", { type: "start_session", sessionId })
        return made(gateway.port)
      })
    )
    expect(sockets).toHaveLength(1)
    yield* collected(sockets)
  })
})
