/** What a client receives when a service behind the gateway fails. */
import { describe, expect } from "@effect/vitest"
import { Duration, Effect, Fiber, Option } from "effect"
import { errorMeanings } from "../../../src/Gateway/Protocol/Codes.ts"
import type { Answer } from "../../../src/Gateway/Protocol.ts"
import { SessionUnreadable } from "../../../src/Gateway/SessionEvents.ts"
import { StoreUnavailable } from "../../../src/Kv/Store.ts"
import { test } from "../../Tests.ts"
import { breathe, inTime, pass, storedWith } from "../Fixture.ts"
import { type Asked, completeTurn, connect, createSession, live, make } from "./Fixture.ts"

/** What an answer says of a failure; it is retryable as its code is, unless a test says otherwise. */
const failure = (answer: Answer) =>
  answer.type === "error"
    ? { code: answer.error.code, isUsual: answer.error.retryable === errorMeanings[answer.error.code].retryable }
    : answer

const fileRequests = (sessionId: string): ReadonlyArray<Asked> => [
  { type: "list_files", sessionId },
  { type: "read_file", sessionId, path: "README.md" },
  { type: "file_history", sessionId, path: "README.md" },
  { type: "file_at_iteration", sessionId, path: "README.md", iteration: 1 }
]

describe("failures as clients see them", () => {
  live("what starts an instance on an unavailable platform is upstream_unavailable", function* ({ simulator, url }) {
    const client = yield* connect(url)
    const sessionId = yield* createSession(client)
    yield* simulator.refuse("platform", true)
    const requests: ReadonlyArray<Asked> = [
      { type: "start_session", sessionId },
      { type: "send_message", sessionId, content: "hello" },
      ...fileRequests(sessionId)
    ]
    for (const request of requests) {
      expect(failure(yield* client.ask(request)), request.type).toEqual({
        code: "upstream_unavailable",
        isUsual: true
      })
    }
  })

  live("failed file calls are upstream_error, and rejected ones upstream_unavailable", function* ({ simulator, url }) {
    const client = yield* connect(url)
    const sessionId = yield* createSession(client)
    yield* client.get("session", { type: "start_session", sessionId })
    const read: Asked = { type: "read_file", sessionId, path: "README.md" }
    for (const [fault, code, isUsual] of [
      [{ kind: "status", status: 400 }, "upstream_error", true],
      [{ kind: "status", status: 401 }, "upstream_error", true],
      [{ kind: "malformed" }, "upstream_error", true],
      [{ kind: "status", status: 500 }, "upstream_error", false],
      [{ kind: "status", status: 503 }, "upstream_unavailable", true]
    ] as const) {
      const rule = yield* simulator.inject({ operation: "*", fault })
      expect(failure(yield* client.ask(read)), JSON.stringify(fault)).toEqual({ code, isUsual })
      yield* simulator.remove(rule)
    }
  })

  live(
    "an activation that takes too long is timeout",
    { settings: { activationTimeout: Duration.millis(50) } },
    function* ({ simulator, url }) {
      const client = yield* connect(url)
      const sessionId = yield* createSession(client)
      yield* simulator.inject({ operation: "create", times: 1, fault: { kind: "latency", millis: 400 } })
      expect(failure(yield* client.ask({ type: "start_session", sessionId }))).toEqual({
        code: "timeout",
        isUsual: true
      })
    }
  )

  test.scopedLive("a history that cannot be read ends its own subscription with an error, and no other", function* () {
    let broken = ""
    const stored = storedWith(({ read }) => ({
      read: (session, after, limit) =>
        session.endsWith(`/${broken}`)
          ? new SessionUnreadable({ session, reason: "SQLITE_CORRUPT: of /data/sessions.db" })
          : read(session, after, limit)
    }))
    const { start } = yield* make({ stored })
    const client = yield* connect((yield* start).url)
    const ids = yield* Effect.forEach([1, 2], () => createSession(client))
    broken = ids[0]!
    for (const sessionId of ids) yield* client.get("subscribed", { type: "subscribe", sessionId })
    const received = yield* client.until(frame => frame.type === "error" && !("seq" in frame))
    expect(received).toMatchObject({ sessionId: broken, error: { code: "internal", retryable: true } })
    expect(received).not.toHaveProperty("id")
    expect(JSON.stringify(received)).not.toContain("SQLITE")
    yield* completeTurn(client, ids[1]!, "hello")
    expect(client.events(broken)).toEqual([])
    // A client that reconnects receives what can be read by then.
    broken = ""
    yield* client.get("subscribed", { type: "subscribe", sessionId: ids[0]! })
    yield* completeTurn(client, ids[0]!, "hello")
  })

  test.scopedLive("an unavailable store is internal, and retryable", function* () {
    const away = new StoreUnavailable({ reason: "the disk is full" })
    const failing = storedWith(
      () => ({}),
      () => ({ commit: () => away })
    )
    const { start } = yield* make({ stored: failing })
    const client = yield* connect((yield* start).url)
    const answer = yield* client.ask({ type: "create_session", agentType: "coder" })
    expect(answer).toMatchObject({ type: "error", error: { code: "internal", retryable: true } })
    expect(JSON.stringify(answer)).not.toContain("disk")
  })

  test.scoped("a message that cannot be sent fails alone, and does not delay a shutdown", function* () {
    const { simulator, start } = yield* make()
    const gateway = yield* start
    const client = yield* connect(gateway.url)
    const sessionId = yield* createSession(client)
    yield* client.get("subscribed", { type: "subscribe", sessionId })
    yield* client.get("accepted", { type: "send_message", sessionId, content: "/hang" })
    yield* simulator.awaitState(({ frames }) => frames.message === 1)
    yield* simulator.refuse("platform", true)
    yield* simulator.disconnect()
    yield* client.untilEvent(sessionId, event => event.type === "session_state" && event.state === "reconnecting")
    const asking = yield* Effect.forEach(
      [
        { type: "send_message", sessionId, content: "first" },
        { type: "send_message", sessionId, content: "bound to it" },
        { type: "interrupt_turn", sessionId }
      ] satisfies ReadonlyArray<Asked>,
      asked => Effect.fork(client.ask(asked))
    )
    yield* breathe
    const answers = yield* Effect.forEach(asking, inTime)
    expect(answers).toMatchObject([
      { error: { code: "timeout", retryable: true, message: expect.stringContaining("could not be sent") } },
      { error: { code: "timeout", message: expect.stringContaining("could not be sent") } },
      // It has been carried out, and failed for itself.
      { error: { code: "timeout", message: expect.stringContaining("No connection") } }
    ])
    yield* Effect.fork(client.ask({ type: "send_message", sessionId, content: "pending" }))
    yield* breathe
    const ending = yield* Effect.fork(gateway.stop)
    let seconds = 0
    while (Option.isNone(yield* Fiber.poll(ending)) && seconds < 60) {
      yield* pass("1 second", "1 second")
      seconds++
    }
    expect(seconds).toBeLessThanOrEqual(12)
  })
})
