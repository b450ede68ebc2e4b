/** Instances that are to be stopped, and creations that were not answered. */
import { describe, expect } from "@effect/vitest"
import { Context, Effect, Either, Fiber, Redacted, TestClock } from "effect"
import { SessionEvents } from "../../../../src/Gateway/SessionEvents.ts"
import type { Sessions } from "../../../../src/Gateway/Sessions.ts"
import type { Simulator } from "../../../../src/Simulator/Simulator.ts"
import { test } from "../../../Tests.ts"
import {
  alice,
  breathe,
  endsOf,
  heard,
  inTime,
  listen,
  live,
  make,
  makeSession,
  pass,
  statesOf,
  timed
} from "../../Fixture.ts"

const secrets = (name: string) => ({ [name]: Redacted.make(`value of ${name}`) })

const withSecrets = (name: string) => ({ create: { secrets: secrets(name) } })

/** A platform that ignores idempotency keys. */
const forgetful = { simulator: { limits: { idempotencyKeys: 0 } } }

/** The answers to as many tries as a creation has are lost, although each is carried out. */
const lostAnswers = { operation: "create", times: 3, fault: { kind: "drop", after: 0 } } as const

const noStops = { operation: "stop", fault: { kind: "status", status: 503 } } as const

/** Runs what takes time, and lets it pass. */
const timely = <A, E>(call: Effect.Effect<A, E>) => Effect.flatMap(Effect.fork(call), inTime)

/** Lets time pass until a platform is in a state. */
const reaches = (simulator: Simulator["Type"], isReached: Parameters<Simulator["Type"]["awaitState"]>[0]) =>
  timely(simulator.awaitState(isReached))

/** Brings a session up twice on a platform that does not stop the first instance, and continues to refuse. */
const leavePendingStop = (simulator: Simulator["Type"], sessions: Sessions["Type"], id: string) =>
  Effect.gen(function* () {
    yield* sessions.start(alice, id)
    const fault = yield* simulator.inject(noStops)
    yield* timely(sessions.stop(alice, id))
    expect(yield* timely(sessions.start(alice, id))).toMatchObject({ state: "active" })
    expect((yield* simulator.state).instances).toHaveLength(2)
    return fault
  })

describe("secrets given with start_session", () => {
  timed("are used if an earlier creation is uncertain", withSecrets("OLD"), function* ({ simulator, sessions, id }) {
    yield* simulator.inject(lostAnswers)
    expect(yield* timely(Effect.flip(sessions.start(alice, id)))).toMatchObject({
      _tag: "AgentPlatformConnectionError"
    })
    const { instanceId } = yield* sessions.start(alice, id, { secrets: secrets("NEW") })
    const { instances } = yield* simulator.state
    expect(instances.find(({ id }) => id === instanceId)?.secretNames).toEqual(["NEW"])
    yield* reaches(simulator, ({ instances }) => instances.length === 1)
  })

  timed(
    "resume an earlier creation if they are the same",
    withSecrets("SAME"),
    function* ({ simulator, sessions, id }) {
      yield* simulator.inject(lostAnswers)
      yield* timely(Effect.flip(sessions.start(alice, id)))
      expect(yield* sessions.start(alice, id, { secrets: secrets("SAME") })).toMatchObject({ state: "active" })
      expect(yield* simulator.state).toMatchObject({ created: 1, instances: [{ secretNames: ["SAME"] }] })
    }
  )

  timed(
    "are used while the last run's creation is resolved",
    withSecrets("TOKEN"),
    function* ({ simulator, start, id, sessions, kill }) {
      const hang = yield* simulator.inject({ operation: "create", fault: { kind: "hang" } })
      yield* Effect.fork(Effect.ignore(sessions.start(alice, id)))
      yield* simulator.awaitState(({ requests }) => requests.create === 1)
      yield* kill
      yield* simulator.remove(hang)
      yield* simulator.inject(lostAnswers)
      const second = yield* start
      yield* simulator.awaitState(({ requests }) => requests.create >= 2)
      const { instanceId, ...session } = yield* timely(second.sessions.start(alice, id, { secrets: secrets("TOKEN") }))
      expect(session).not.toHaveProperty("missingSecrets")
      const { instances } = yield* simulator.state
      expect(instances.find(({ id }) => id === instanceId)?.secretNames).toEqual(["TOKEN"])
      yield* pass("30 seconds", "1 second")
      yield* reaches(simulator, ({ instances }) => instances.length === 1)
    }
  )

  timed(
    "are used while an earlier creation is in progress",
    { ...withSecrets("OLD"), ...forgetful },
    function* ({ simulator, sessions, id }) {
      yield* simulator.inject({ operation: "create", times: 1, fault: { kind: "latency", millis: 18_000 } })
      yield* Effect.fork(Effect.ignore(sessions.start(alice, id)))
      yield* simulator.awaitState(({ requests }) => requests.create === 1)
      expect(yield* timely(sessions.stop(alice, id))).toMatchObject({ state: "inactive", instanceId: null })
      const { instanceId } = yield* timely(sessions.start(alice, id, { secrets: secrets("NEW") }))
      yield* pass("20 seconds", "1 second")
      const { created, instances, requests } = yield* reaches(simulator, ({ instances }) => instances.length === 1)
      // Neither is asked for again by its key.
      expect([created, requests.create]).toEqual([2, 2])
      expect(instances).toMatchObject([{ id: instanceId, secretNames: ["NEW"] }])
    }
  )
})

describe("A platform that does not stop instances", () => {
  test.scoped("does not prevent users from working, also after a restart", function* () {
    const { simulator, start } = yield* make()
    const first = yield* start
    const [free = "", ...busy] = yield* Effect.forEach([1, 2, 3, 4], () =>
      Effect.map(first.sessions.create(alice, { agentType: "echo" }), ({ id }) => id)
    )
    yield* Effect.forEach(busy, id => first.sessions.start(alice, id))
    yield* simulator.inject(noStops)
    for (const id of busy.slice(0, 2)) {
      expect(yield* timely(first.sessions.stop(alice, id))).toMatchObject({ state: "inactive" })
    }
    expect(yield* first.sessions.start(alice, free)).toMatchObject({ state: "active" })
    yield* first.kill
    const second = yield* start
    const refused: Array<string> = []
    yield* Effect.repeatN(
      Effect.gen(function* () {
        const answer = yield* timely(Effect.either(second.sessions.listFiles(alice, free, {})))
        if (Either.isLeft(answer)) refused.push(answer.left.message)
      }),
      24
    )
    expect(refused).toEqual([])
    yield* simulator.clear
    yield* reaches(simulator, ({ instances }) => instances.length === 1)
  })

  test.scoped("is waited for within a limit, also if a request cannot be interrupted at once", function* () {
    const answered = yield* Effect.makeLatch(false)
    const stop = () => Effect.uninterruptible(answered.await)
    const { sessions, id } = yield* makeSession({ platform: platform => ({ ...platform, stop }) })
    yield* sessions.start(alice, id)
    const stopping = yield* Effect.fork(sessions.stop(alice, id))
    yield* pass("16 seconds", "1 second")
    const ended = yield* Fiber.poll(stopping)
    yield* answered.open
    expect(ended._tag).toBe("Some")
  })

  timed("is asked again at the gateway's shutdown", function* ({ simulator, sessions, stop, id }) {
    const fault = yield* leavePendingStop(simulator, sessions, id)
    yield* simulator.remove(fault)
    yield* simulator.inject({ operation: "stop", fault: { kind: "latency", millis: 3000 } })
    const { requests } = yield* simulator.state
    yield* reaches(simulator, state => state.requests.stop > requests.stop)
    expect((yield* simulator.state).instances).toHaveLength(2)
    const closing = yield* Effect.fork(stop)
    // No time passes until the end has asked for both, so that a slow machine does not use up its limit.
    yield* simulator.awaitState(state => state.requests.stop >= requests.stop + 3)
    yield* breathe
    yield* TestClock.adjust("3 seconds")
    yield* simulator.awaitState(({ instances }) => instances.length === 0)
    yield* inTime(closing)
  })
})

describe("a creation without an answer", () => {
  test.scoped("is resolved after its session was deleted and the gateway was killed", function* () {
    const { simulator, start, stored } = yield* make()
    const first = yield* start
    const { id } = yield* first.sessions.create(alice, {
      agentType: "echo",
      deployment: { region: "north" },
      environment: { PLACE: "here" }
    })
    yield* simulator.inject(lostAnswers)
    yield* timely(Effect.ignore(first.sessions.start(alice, id)))
    yield* simulator.inject({ operation: "create", fault: { kind: "status", status: 503 } })
    yield* timely(first.sessions.remove(alice, id))
    yield* first.kill
    yield* simulator.clear
    expect((yield* simulator.state).instances).toHaveLength(1)
    const second = yield* start
    yield* simulator.awaitState(({ instances }) => instances.length === 0)
    expect((yield* simulator.state).created).toBe(1)
    expect(yield* Effect.flip(second.sessions.get(alice, id))).toMatchObject({ _tag: "SessionNotFound" })
    yield* pass("10 seconds", "1 second")
    expect(yield* Context.get(stored, SessionEvents).find(`acme/${id}`)).toMatchObject({ _tag: "None" })
  })

  timed(
    "is given up if it is refused, and releases its slot",
    { settings: { inMemory: 1 } },
    function* ({ simulator, sessions, id }) {
      const { id: other } = yield* sessions.create(alice, { agentType: "echo" })
      yield* simulator.inject({ operation: "create", times: 1, fault: { kind: "status", status: 503 } })
      yield* simulator.inject({ operation: "create", fault: { kind: "status", status: 400 } })
      yield* timely(Effect.ignore(sessions.start(alice, id)))
      yield* simulator.clear
      const refusing = yield* simulator.inject({ operation: "create", fault: { kind: "status", status: 400 } })
      yield* pass("70 minutes", "20 seconds")
      const { requests } = yield* simulator.state
      yield* pass("20 minutes", "20 seconds")
      expect((yield* simulator.state).requests.create).toBe(requests.create)
      yield* simulator.remove(refusing)
      expect(yield* sessions.start(alice, other)).toMatchObject({ state: "active" })
    }
  )
})

describe("a session whose history was removed", () => {
  timed("keeps its pending stops, and is used at once", function* ({ simulator, start, stored, sessions, id, kill }) {
    yield* leavePendingStop(simulator, sessions, id)
    const before = yield* listen(sessions, id)
    yield* Context.get(stored, SessionEvents).remove(`acme/${id}`)
    yield* timely(sessions.send(alice, id, "hello"))
    yield* before.untilLost
    expect(yield* sessions.get(alice, id)).toMatchObject({ state: "active" })
    yield* pass("2 minutes")
    yield* kill
    yield* simulator.clear
    const second = yield* start
    yield* simulator.awaitState(({ instances }) => instances.length === 0)
    expect(yield* second.sessions.start(alice, id)).toMatchObject({ state: "active" })
  })
})

describe("An earlier instance of a session", () => {
  heard(
    "abandoned in its creation, is stopped by its id",
    forgetful,
    function* ({ simulator, sessions, id, listener }) {
      yield* simulator.inject({ operation: "create", fault: { kind: "latency", millis: 100 } })
      const starting = yield* Effect.fork(Effect.flip(sessions.send(alice, id, "hello")))
      yield* simulator.awaitState(({ requests }) => requests.create === 1)
      expect(yield* sessions.stop(alice, id)).toMatchObject({ state: "inactive", instanceId: null })
      expect(yield* Fiber.join(starting)).toMatchObject({ _tag: "SessionNotActive" })
      expect(statesOf(listener.events)).toEqual(["activating", "deactivating", "inactive"])
      expect(endsOf(listener.events)).toEqual({})
      expect(yield* simulator.state).toMatchObject({ created: 1, stopped: 1, instances: [], requests: { create: 1 } })
      expect((yield* sessions.start(alice, id)).state).toBe("active")
      yield* sessions.remove(alice, id)
      expect(yield* simulator.state).toMatchObject({ created: 2, stopped: 2, instances: [] })
    }
  )

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
