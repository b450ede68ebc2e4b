/** Instances that a session has left and that are still to be stopped. */
import { describe, expect } from "@effect/vitest"
import { Context, Effect, Fiber } from "effect"
import { SessionEvents } from "../../../../src/Gateway/SessionEvents.ts"
import { alice, inTime, listen, live, pass, timed } from "../../Fixture.ts"

/** A platform that ignores idempotency keys. */
const forgetful = { simulator: { limits: { idempotencyKeys: 0 } } }

describe("An earlier instance of a session", () => {
  live("abandoned during its creation, is stopped by its id", forgetful, function* ({ simulator, sessions, id }) {
    yield* simulator.inject({ operation: "create", fault: { kind: "latency", millis: 100 } })
    const starting = yield* Effect.fork(Effect.flip(sessions.start(alice, id)))
    yield* simulator.awaitState(({ requests }) => requests.create === 1)
    expect(yield* sessions.stop(alice, id)).toMatchObject({ state: "inactive", instanceId: null })
    expect(yield* Fiber.join(starting)).toMatchObject({ _tag: "SessionNotActive" })
    expect(yield* simulator.state).toMatchObject({ created: 1, stopped: 1, instances: [], requests: { create: 1 } })
    expect((yield* sessions.start(alice, id)).state).toBe("active")
    const removing = yield* Effect.fork(sessions.remove(alice, id))
    yield* Fiber.join(removing)
    expect(yield* simulator.state).toMatchObject({ created: 2, stopped: 2, instances: [] })
  })

  timed("created without a waiting caller, is stopped", forgetful, function* ({ simulator, sessions, id }) {
    yield* simulator.inject({ operation: "create", fault: { kind: "latency", millis: 25_000 } })
    const starting = yield* Effect.fork(Effect.flip(sessions.start(alice, id)))
    yield* simulator.awaitState(({ requests }) => requests.create === 1)
    const stopping = yield* Effect.fork(sessions.stop(alice, id))
    expect(yield* inTime(stopping)).toMatchObject({ state: "inactive" })
    expect(yield* Fiber.join(starting)).toMatchObject({ _tag: "SessionNotActive" })
    expect((yield* simulator.state).created).toBe(0)
    yield* pass("30 seconds", "1 second")
    yield* simulator.awaitState(({ created, instances }) => created === 1 && instances.length === 0)
    expect((yield* simulator.state).requests.create).toBe(1)
  })

  live("not stopped by the platform, is remembered", function* ({ simulator, start, id, sessions, kill }) {
    const stale = (yield* sessions.start(alice, id)).instanceId
    yield* kill
    yield* simulator.inject({ operation: "stop", fault: { kind: "status", status: 503 } })
    const second = yield* start
    const listener = yield* listen(second.sessions, id)
    const turnId = yield* second.sessions.send(alice, id, "hello again")
    yield* listener.until(event => event.type === "turn_completed" && event.turnId === turnId)
    const fresh = (yield* second.sessions.get(alice, id)).instanceId
    expect((yield* simulator.state).instances.map(({ id }) => id).sort()).toEqual([stale, fresh].sort())
    // It is remembered beyond the end of this gateway, and of the next one.
    yield* second.kill
    const { requests: before } = yield* simulator.state
    const third = yield* start
    yield* simulator.awaitState(({ requests }) => requests.stop >= before.stop + 2)
    yield* third.kill
    yield* simulator.clear
    const fourth = yield* start
    yield* simulator.awaitState(({ instances }) => instances.length === 0)
    expect(yield* fourth.sessions.get(alice, id)).toMatchObject({ state: "inactive", instanceId: null })
  })

  timed("is stopped later, while another one runs", function* ({ simulator, stored, sessions, id }) {
    const recoveryState = Effect.map(
      Effect.flatten(Context.get(stored, SessionEvents).find(`acme/${id}`)),
      history => history.recoveryState
    )
    const fault = yield* simulator.inject({ operation: "stop", fault: { kind: "status", status: 500 } })
    for (let i = 0; i < 3; i++) {
      yield* sessions.start(alice, id)
      yield* sessions.stop(alice, id)
    }
    const { instanceId } = yield* sessions.start(alice, id)
    expect((yield* simulator.state).instances).toHaveLength(4)
    expect(yield* recoveryState).toContain("pendingStops")
    yield* simulator.remove(fault)
    yield* pass("30 seconds", "1 second")
    yield* simulator.awaitState(({ instances }) => instances.length === 1)
    expect((yield* simulator.state).instances.map(({ id }) => id)).toEqual([instanceId])
    expect(yield* sessions.get(alice, id)).toMatchObject({ state: "active", instanceId })
    expect(yield* recoveryState).not.toContain("pendingStops")
  })
})
