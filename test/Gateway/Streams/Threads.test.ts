/** The sessions of names: of unknown agents, of deleted sessions, and of creations that were cut short. */
import { assert, describe, expect } from "@effect/vitest"
import { Effect } from "effect"
import { StoreUnavailable } from "../../../src/Kv/Store.ts"
import { storedWith } from "../Fixture.ts"
import { ask, post } from "../HttpSessions/Fixture.ts"
import { connect, live } from "../Socket/Fixture.ts"
import { kinds } from "./Following.ts"

const run = (id: string) => ({ threadId: "c", runId: id, messages: [{ id, role: "user", content: "hi" }] })

const submission = (id: string) => ({
  ...{ id: "c", messages: [{ id, role: "user", parts: [{ type: "text", text: "hi" }] }] }
})

describe("An agent type", () => {
  live("that the platform does not know is refused as on the socket", function* ({ agUi, chats, simulator, url }) {
    yield* simulator.inject({ operation: "create", fault: { kind: "status", status: 422 } })
    const client = yield* connect(url)
    const { session } = yield* client.get("session_created", { type: "create_session", agentType: "unheard" })
    const { id: sessionId } = session
    const answer = yield* client.ask({ type: "send_message", sessionId, content: "hi" })
    assert.isTrue(answer.type === "error" && answer.error.code === "upstream_error", JSON.stringify(answer))
    const { message } = (answer as { readonly error: { readonly message: string } }).error
    for (const answered of [
      yield* post(`${agUi}/unheard`, run("m")),
      yield* post(chats.replace("echo", "unheard"), submission("n"))
    ]) {
      expect([answered.status, answered.json.error]).toEqual([502, message])
    }
    const unheard = { agUi, chats: chats.replace("echo", "unheard") }
    const one = yield* kinds["the AI SDK over a WebSocket"]!.follow(unheard, "other", "o", "hi")
    assert.strictEqual(yield* one.end, message)
  })

  live("has a limit, and is that of its thread", function* ({ agUi, base, chats }) {
    const long = "x".repeat(1000)
    for (const answered of [
      yield* post(`${agUi}/${long}`, run("m")),
      yield* post(chats.replace("echo", long), submission("m"))
    ]) {
      expect([answered.status, answered.json.error]).toEqual([400, expect.stringMatching(/agentType: has 1000 char/)])
    }
    assert.deepStrictEqual((yield* ask(base)).json.sessions, [])
    assert.strictEqual((yield* post(`${agUi}/echo`, run("m"))).status, 200)
    for (const answered of [
      yield* post(`${agUi}/other`, run("n")),
      yield* post(chats.replace("echo", "other"), submission("n"))
    ]) {
      expect([answered.status, answered.json.error]).toEqual([409, expect.stringMatching(/agent of another type/)])
    }
  })
})

describe("A name", () => {
  let failures = 0
  const failing = storedWith(
    () => ({}),
    store => ({
      commit: request =>
        request.operations.some(({ namespace }) => namespace.endsWith("/threads")) && failures-- > 0
          ? new StoreUnavailable({ reason: "the disk is full" })
          : store.commit(request)
    })
  )

  live("of a deleted session has none, though its creation was cut short", { stored: failing }, function* (gateway) {
    const { agUi, base, chats } = gateway
    failures = 1
    assert.strictEqual((yield* post(`${agUi}/echo`, run("m"))).status, 503)
    // There is no session without a name.
    assert.deepStrictEqual((yield* ask(base)).json.sessions, [])
    assert.strictEqual((yield* ask(`${chats}/c/stream`)).status, 204)
    assert.strictEqual((yield* post(`${agUi}/echo`, run("m"))).status, 200)
    const { sessions } = (yield* ask(base)).json
    const ids = [sessions[0]!.id, "c"]
    assert.strictEqual((yield* ask(`${base}/${ids[0]}`, { method: "DELETE" })).status, 204)
    for (const [index, name] of ids.entries()) {
      for (const answered of [
        yield* post(`${agUi}/echo`, { ...run("n"), threadId: name }),
        yield* post(chats, { ...submission("n"), id: name }),
        yield* ask(`${chats}/${name}/messages`)
      ]) {
        expect([answered.status, answered.json.error], `${index}`).toEqual([404, `There is no session "${name}"`])
      }
    }
    const one = yield* kinds["the AI SDK over a WebSocket"]!.follow(gateway, "c", "o", "hi")
    assert.strictEqual(yield* one.end, 'There is no session "c"')
  })

  const requests = 8
  let lookUps = 0
  const waiting = new Set<() => void>()
  /** Lets each request look the name up, and once more before it creates a session, before any of them continues. */
  const together = Effect.async<void>(resume => {
    waiting.add(() => resume(Effect.void))
    if (waiting.size < requests) return
    for (const resumeOne of waiting) resumeOne()
    waiting.clear()
  })
  const atOnce = storedWith(
    () => ({}),
    store => ({
      get: (namespace, key) =>
        namespace.endsWith("/threads") && ++lookUps <= 2 * requests
          ? Effect.zipLeft(store.get(namespace, key), together)
          : store.get(namespace, key)
    })
  )

  live("that is first used by many requests at once has one session", { stored: atOnce }, function* ({ agUi, base }) {
    const all = yield* Effect.all(
      Array.from({ length: requests }, () => post(`${agUi}/echo`, run("m"))),
      {
        concurrency: "unbounded"
      }
    )
    assert.deepStrictEqual(
      all.map(({ status }) => status),
      all.map(() => 200)
    )
    const { sessions } = (yield* ask(base)).json
    assert.lengthOf(sessions, 1)
    const { events } = yield* ask(`${base}/${sessions[0]!.id}/events`)
    assert.lengthOf(
      events.filter(({ type }) => type === "turn_started"),
      1
    )
  })
})
