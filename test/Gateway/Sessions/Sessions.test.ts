/** Sessions against a simulated platform: messages and turns, access, deletion, titles and limits. */
import { describe, expect } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { StoreUnavailable } from "../../../src/Kv/Store.ts"
import { test } from "../../Tests.ts"
import {
  alice,
  bare,
  breathe,
  endsOf,
  heard,
  history,
  isDense,
  listen,
  live,
  makeHeard,
  recordsOf,
  startStates,
  statesOf,
  storedWith,
  typesOf
} from "../Fixture.ts"

/** A store whose events cannot be appended while they are unavailable, perhaps from the resolution of a question on. */
const unsteady = (away: { is: boolean; fromResolution?: boolean }) =>
  storedWith(({ append }) => ({
    append: request =>
      Effect.suspend(() => {
        if (away.fromResolution === true && request.texts.some(text => text.includes("question_resolved"))) {
          away.is = true
        }
        return away.is ? new StoreUnavailable({ reason: "away" }) : append(request)
      })
  }))

describe("Sessions", () => {
  heard("a message activates, and its turn has dense numbers", function* ({ simulator, sessions, id, listener }) {
    const turnId = yield* sessions.send(alice, id, "hello there")
    yield* listener.until(event => event.type === "turn_completed" && event.turnId === turnId)
    expect(statesOf(listener.events)).toEqual(startStates)
    isDense(listener.events.map(({ seq }) => seq))
    expect(endsOf(listener.events)).toEqual({ [turnId]: ["turn_completed"] })
    const text = listener.events.flatMap(event => (event.type === "text_delta" ? [event.text] : [])).join("")
    expect(text).toBe("echo: hello there")
    expect(yield* history(listener.subscription)).toEqual(listener.events)
    const session = yield* sessions.get(alice, id)
    expect(session).toMatchObject({ state: "active", headSeq: listener.events.length, tenant: "acme" })
    expect((yield* simulator.state).instances.map(({ id }) => id)).toEqual([session.instanceId])
    yield* sessions.stop(alice, id)
    expect((yield* simulator.state).instances).toEqual([])
    expect(typesOf(listener.events)).toContain("usage_context")
  })

  heard("concurrent messages share an instance, in their order", function* ({ simulator, sessions, id, listener }) {
    const turnIds = yield* Effect.all(
      [1, 2, 3, 4, 5].map(n => sessions.send(alice, id, `message ${n}`)),
      { concurrency: "unbounded" }
    )
    yield* listener.until(event => event.type === "turn_completed" && event.turnId === turnIds.at(-1))
    const started = listener.events.flatMap(event => (event.type === "turn_started" ? [event.turnId] : []))
    expect(started).toEqual(turnIds)
    expect((yield* simulator.state).created).toBe(1)
  })

  heard("with all types of events each turn ends once", function* ({ simulator, sessions, id, listener }) {
    const turnId = yield* sessions.send(alice, id, "/all")
    yield* listener.until(event => event.type === "session_state" && event.state === "error")
    yield* simulator.awaitState(({ instances }) => instances.length === 0)
    const ends = endsOf(listener.events)
    expect(ends[turnId]).toEqual(["turn_completed"])
    expect(ends[`${turnId}-failing`]).toEqual(["turn_errored"])
    expect(ends[`${turnId}-cancelled`]).toEqual(["turn_interrupted"])
    expect(new Set(typesOf(listener.events)).size).toBeGreaterThan(35)
  })

  live("a deletion removes history, instance and record", function* ({ simulator, stored, sessions, id }) {
    yield* sessions.start(alice, id)
    yield* sessions.remove(alice, id)
    expect((yield* simulator.state).instances).toEqual([])
    expect(yield* recordsOf(stored)).toEqual([])
    expect(yield* Effect.flip(sessions.remove(alice, id))).toMatchObject({ _tag: "SessionNotFound" })
    expect(yield* Effect.flip(sessions.send(alice, id, "hello"))).toMatchObject({ _tag: "SessionNotFound" })
  })

  bare("starting a session that is being deleted fails, and creates no instance", function* ({ sessions, simulator }) {
    for (const again of ["start", "send"] as const) {
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
      yield* sessions.start(alice, id)
      const removing = yield* Effect.fork(sessions.remove(alice, id))
      yield* Effect.yieldNow()
      const late =
        again === "start" ? Effect.asVoid(sessions.start(alice, id)) : Effect.asVoid(sessions.send(alice, id, "?"))
      expect(yield* Effect.flip(late)).toMatchObject({ _tag: "SessionNotFound" })
      yield* Fiber.join(removing)
    }
    const { created, instances } = yield* simulator.state
    expect([created, instances]).toEqual([2, []])
  })

  for (const inference of [true, false]) {
    const title = `the title is ${inference ? "made up" : "the first words"} after the first turn`
    live(title, { inference }, function* ({ simulator, sessions, id }) {
      const named = yield* sessions.create(alice, { agentType: "echo", title: "Given" })
      const message = "Please explain to me how the tides work and why there are two of them in a day"
      for (const session of [id, named.id]) {
        const listener = yield* listen(sessions, session)
        yield* sessions.send(alice, session, message)
        const first = yield* sessions.get(alice, session)
        if (session === id) expect(first.title).toMatch(/^Please explain to me how the tides/)
        yield* listener.until(event => event.type === "turn_completed")
      }
      if (inference) {
        yield* simulator.awaitState(({ requests }) => requests.generate === 1)
        yield* Effect.repeat(Effect.zipRight(breathe, sessions.get(alice, id)), {
          until: ({ title }) => title === "Please explain to me how the"
        })
      } else expect((yield* sessions.get(alice, id)).title).toMatch(/^Please explain/)
      expect((yield* sessions.get(alice, named.id)).title).toBe("Given")
    })
  }

  test.scopedLive("events are delivered only after they are stored", function* () {
    const away = { is: false }
    const { simulator, sessions, id, listener } = yield* makeHeard({ stored: unsteady(away) })
    yield* sessions.start(alice, id)
    const turnId = yield* sessions.send(alice, id, "/ask")
    const asked = yield* listener.until(event => event.type === "question_requested")
    away.is = true
    const seen = listener.events.length
    expect(yield* Effect.flip(sessions.send(alice, id, "no"))).toMatchObject({ _tag: "StoreUnavailable" })
    expect(yield* Effect.flip(sessions.stop(alice, id))).toMatchObject({ _tag: "StoreUnavailable" })
    Object.assign(away, { is: false, fromResolution: true })
    if (asked.type === "question_requested") yield* sessions.answer(alice, id, asked.requestId, "red")
    const { instances } = yield* simulator.awaitState(({ frames }) => frames.answer === 1)
    yield* simulator.awaitState(({ instances: [instance] }) => instance!.events > instances[0]!.events + 3)
    yield* breathe
    expect(listener.events).toHaveLength(seen)
    Object.assign(away, { is: false, fromResolution: false })
    yield* listener.until(event => event.type === "turn_completed" && event.turnId === turnId)
    isDense(listener.events.map(({ seq }) => seq))
    expect(endsOf(listener.events)).toEqual({ [turnId]: ["turn_completed"] })
  })
})
