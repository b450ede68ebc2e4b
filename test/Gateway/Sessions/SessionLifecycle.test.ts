/** Activations and the ends of sessions' instances, against a simulated platform. */
import { describe, expect } from "@effect/vitest"
import { Duration, Effect, Fiber } from "effect"
import {
  alice,
  bare,
  endsOf,
  heard,
  inTime,
  isDense,
  listen,
  pass,
  startStates,
  statesOf,
  timed,
  timedBare,
  timedHeard
} from "../Fixture.ts"

const hurried = { settings: { activationTimeout: Duration.seconds(20) } }

describe("The lifecycle of a session", () => {
  bare("concurrent calls share one transition, wherever their fibers yield", function* ({ sessions, simulator }) {
    for (let index = 1; index <= 20; index++) {
      const steps = index + 15
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
      const listener = yield* listen(sessions, id)
      const atOnce = <A, E>(call: Effect.Effect<A, E>) =>
        Effect.all(
          Array.from({ length: 5 }, () => Effect.withMaxOpsBeforeYield(call, steps)),
          { concurrency: "unbounded" }
        )
      yield* atOnce(sessions.start(alice, id))
      yield* atOnce(sessions.stop(alice, id))
      expect((yield* simulator.state).created).toBe(index)
      expect(statesOf(listener.events).filter(state => state === "deactivating")).toHaveLength(1)
    }
  })

  timed("interrupted callers of an activation affect no others", function* ({ simulator, sessions, id }) {
    yield* simulator.inject({ operation: "create", fault: { kind: "latency", millis: 5000 } })
    const leader = yield* Effect.fork(sessions.start(alice, id))
    yield* simulator.awaitState(({ requests }) => requests.create === 1)
    const waiters = yield* Effect.forEach([1, 2, 3], () => Effect.fork(sessions.start(alice, id)))
    yield* Effect.yieldNow()
    yield* Fiber.interrupt(leader)
    yield* Fiber.interrupt(waiters[0]!)
    yield* pass("6 seconds", "1 second")
    for (const waiter of waiters.slice(1)) expect(yield* Fiber.join(waiter)).toMatchObject({ state: "active" })
    expect((yield* simulator.state).requests.create).toBe(1)
  })

  timedHeard(
    "an activation may time out, and the next takes over",
    hurried,
    function* ({ simulator, sessions, id, listener }) {
      // The platform makes the instance, and its answer is lost.
      yield* simulator.inject({ operation: "create", times: 1, fault: { kind: "drip", bytes: 1, everyMillis: 60_000 } })
      const starting = yield* Effect.fork(Effect.flip(sessions.start(alice, id)))
      yield* simulator.awaitState(({ instances }) => instances.length === 1)
      yield* pass("21 seconds", "1 second")
      const failure = yield* Fiber.join(starting)
      expect(failure).toMatchObject({ _tag: "ActivationTimeout", message: expect.stringContaining("20s") })
      expect((yield* sessions.get(alice, id)).state).toBe("error")
      const again = yield* Effect.fork(sessions.start(alice, id))
      // The first try of the creation is given up after 30 seconds.
      expect((yield* inTime(again)).state).toBe("active")
      const expected = ["activating", "error", ...startStates]
      yield* listener.until(() => statesOf(listener.events).length >= expected.length)
      expect(statesOf(listener.events)).toEqual(expected)
      expect(yield* simulator.state).toMatchObject({ created: 1, instances: [{ connections: 1 }] })
    }
  )

  timedBare("only a session without subscribers and turns is stopped when idle", function* ({ sessions, simulator }) {
    const ids = yield* Effect.forEach(["idle", "watched", "busy"], title =>
      Effect.map(sessions.create(alice, { agentType: "echo", title }), ({ id }) => id)
    )
    const [idle, watched, busy] = ids as [string, string, string]
    yield* Effect.forEach(ids, id => sessions.start(alice, id))
    yield* listen(sessions, watched)
    yield* Effect.scoped(
      Effect.gen(function* () {
        const listener = yield* listen(sessions, busy)
        const turnId = yield* sessions.send(alice, busy, "/hang")
        yield* listener.until(event => event.type === "turn_started" && event.turnId === turnId)
      })
    )
    yield* pass("29 minutes")
    expect((yield* simulator.state).instances).toHaveLength(3)
    yield* pass("90 seconds")
    yield* simulator.awaitState(({ instances }) => instances.length === 2)
    expect((yield* sessions.get(alice, idle)).state).toBe("inactive")
    expect((yield* sessions.get(alice, watched)).instanceId).not.toBeNull()
    expect((yield* sessions.get(alice, busy)).instanceId).not.toBeNull()
    // It can be started again.
    expect((yield* sessions.start(alice, idle)).state).toBe("active")
  })

  heard("a lost connection loses and repeats no event", function* ({ sessions, id, listener }) {
    const turnId = yield* sessions.send(alice, id, "/drop")
    yield* listener.until(event => event.type === "turn_completed" && event.turnId === turnId)
    const expected = [...startStates, "reconnecting", "active"]
    yield* listener.until(() => statesOf(listener.events).length >= expected.length)
    expect(statesOf(listener.events)).toEqual(expected)
    const text = listener.events.flatMap(event => (event.type === "text_delta" ? [event.text] : []))
    expect(text).toEqual(["before ", "after"])
    expect(endsOf(listener.events)).toEqual({ [turnId]: ["turn_completed"] })
  })

  heard("each turn ends once, however its instance ends", function* ({ simulator, sessions, id, listener }) {
    const turnIds: Array<string> = []
    const hang = Effect.gen(function* () {
      const turnId = yield* sessions.send(alice, id, "/hang")
      yield* listener.until(event => event.type === "turn_started" && event.turnId === turnId)
      // This one waits behind it at the platform.
      turnIds.push(turnId, yield* sessions.send(alice, id, "waits"))
    })
    const rests = (turnId: string) =>
      listener.until(
        event =>
          "turnId" in event &&
          event.turnId === turnId &&
          event.type.startsWith("turn_") &&
          event.type !== "turn_started"
      )

    const crashed = yield* sessions.send(alice, id, "/crash out of tea")
    turnIds.push(crashed)
    expect(yield* rests(crashed)).toMatchObject({
      type: "turn_errored",
      message: "The instance failed during the turn: out of tea"
    })
    yield* listener.until(event => event.type === "session_state" && event.state === "error")

    yield* hang
    yield* simulator.reclaim()
    yield* rests(turnIds.at(-1)!)
    yield* listener.until(event => event.type === "session_state" && event.state === "inactive")

    yield* hang
    yield* sessions.stop(alice, id)
    yield* rests(turnIds.at(-1)!)

    yield* hang
    const failing = yield* sessions.interrupt(alice, id, turnIds.at(-2))
    yield* rests(failing)
    yield* rests(turnIds.at(-1)!)

    const ends = endsOf(listener.events)
    expect(Object.keys(ends).sort()).toEqual([...turnIds].sort())
    expect(Object.values(ends).map(all => all.length)).toEqual(turnIds.map(() => 1))
    isDense(listener.events.map(({ seq }) => seq))
    expect((yield* simulator.state).instances).toHaveLength(1)
  })

  timedHeard("an unreachable instance is given up in ten minutes", function* ({ simulator, sessions, id, listener }) {
    const turnId = yield* sessions.send(alice, id, "/hang")
    yield* listener.until(event => event.type === "turn_started")
    yield* simulator.refuse("platform", true)
    yield* simulator.disconnect()
    yield* listener.until(event => event.type === "session_state" && event.state === "reconnecting")
    yield* pass("9 minutes")
    expect((yield* sessions.get(alice, id)).state).toBe("reconnecting")
    yield* pass("70 seconds")
    yield* listener.until(event => event.type === "session_state" && event.state === "error")
    expect(endsOf(listener.events)).toEqual({ [turnId]: ["turn_errored"] })
    yield* simulator.refuse("platform", false)
    yield* pass("6 minutes")
    yield* simulator.awaitState(({ instances }) => instances.length === 0)
  })
})
