/** Shutdown of the gateway, and recovery after a crash or a loss. */
import { describe, expect } from "@effect/vitest"
import { Context, Effect, Fiber, Option, Redacted } from "effect"
import { SessionEvents } from "../../../../src/Gateway/SessionEvents.ts"
import { namespaceOf } from "../../../../src/Gateway/Sessions/Session/SessionRecords.ts"
import { Store } from "../../../../src/Kv/Store.ts"
import { test } from "../../../Tests.ts"
import {
  alice,
  createSessions,
  endsOf,
  history,
  inTime,
  isDense,
  listen,
  live,
  make,
  makeSession,
  pass,
  recordsOf,
  startStates,
  statesOf,
  timed,
  timedHeard
} from "../../Fixture.ts"

describe("Shutdown and recovery of sessions", () => {
  test.scopedLive("a shutdown stops all instances, and records the state of each session", function* () {
    const { simulator, start, stored } = yield* make()
    const first = yield* start
    const ids = yield* createSessions(first.sessions, 3)
    yield* Effect.forEach(ids, id => first.sessions.start(alice, id))
    const turnId = yield* first.sessions.send(alice, ids[0]!, "/hang")
    yield* first.stop
    expect((yield* simulator.state).instances).toEqual([])
    const records = yield* recordsOf(stored)
    expect(records.map(({ value }) => [value.state, value.instanceId])).toEqual(ids.map(() => ["inactive", null]))
    const second = yield* start
    const listener = yield* listen(second.sessions, ids[0]!)
    const events = yield* history(listener.subscription)
    expect(endsOf(events)).toEqual({ [turnId]: ["turn_interrupted"] })
    expect(statesOf(events)).toEqual([...startStates, "deactivating", "inactive"])
  })

  live("a kill ends turn and instance, and loses no event", function* ({ simulator, start, id, sessions, kill }) {
    const before = yield* listen(sessions, id)
    const turnId = yield* sessions.send(alice, id, "/hang")
    yield* before.until(event => event.type === "turn_started")
    yield* kill
    const seen = [...before.events]

    const second = yield* start
    yield* simulator.awaitState(({ instances }) => instances.length === 0)
    const after = yield* listen(second.sessions, id)
    expect(after.subscription.session).toMatchObject({ state: "inactive", instanceId: null })
    const events = yield* history(after.subscription)
    expect(events.slice(0, seen.length)).toEqual(seen)
    expect(endsOf(events)).toEqual({ [turnId]: ["turn_errored"] })
    isDense(events.map(({ seq }) => seq))
    const next = yield* second.sessions.send(alice, id, "again")
    yield* after.until(event => event.type === "turn_completed" && event.turnId === next)
    expect(after.events[0]!.seq).toBe(events.length + 1)
  })

  live("an instance made during a kill is stopped by its key", function* ({ simulator, start, id, sessions, kill }) {
    yield* simulator.inject({ operation: "create", times: 1, fault: { kind: "latency", millis: 50 } })
    yield* Effect.fork(sessions.start(alice, id))
    yield* simulator.awaitState(({ requests }) => requests.create === 1)
    yield* kill
    yield* simulator.awaitState(({ instances }) => instances.length === 1)
    const second = yield* start
    yield* simulator.awaitState(({ instances }) => instances.length === 0)
    expect((yield* second.sessions.get(alice, id)).state).toBe("inactive")
    expect((yield* simulator.state).created).toBe(1)
  })

  test.scopedLive("a session with lost secrets is not activated without them, unless that is requested", function* () {
    const { simulator, start, stored } = yield* make()
    const first = yield* start
    const secrets = { TOKEN: Redacted.make("t"), OTHER: Redacted.make("o") }
    const { id } = yield* first.sessions.create(alice, { agentType: "echo", secrets })
    const { id: plain } = yield* first.sessions.create(alice, { agentType: "echo" })
    expect(yield* first.sessions.start(alice, id)).not.toHaveProperty("missingSecrets")
    yield* first.stop

    const second = yield* start
    const listed = (yield* second.sessions.list(alice)).sessions
    expect(listed.find(session => session.id === id)?.missingSecrets).toEqual(["TOKEN", "OTHER"])
    expect(listed.find(session => session.id === plain)).not.toHaveProperty("missingSecrets")
    const refused = {
      _tag: "SessionConflict",
      message: expect.stringContaining("TOKEN, OTHER. Give the session's secrets again")
    }
    const listener = yield* listen(second.sessions, id)
    expect(yield* Effect.flip(second.sessions.start(alice, id))).toMatchObject(refused)
    expect(yield* Effect.flip(second.sessions.send(alice, id, "hello"))).toMatchObject(refused)
    expect(yield* Effect.flip(second.sessions.listFiles(alice, id, {}))).toMatchObject(refused)
    expect(listener.events).toEqual([])
    expect((yield* simulator.state).created).toBe(1)
    yield* second.sessions.start(alice, plain)

    const given = yield* second.sessions.start(alice, id, { secrets })
    expect(given).toMatchObject({ state: "active" })
    expect(given).not.toHaveProperty("missingSecrets")
    const { instances } = yield* simulator.state
    expect(instances.find(({ id }) => id === given.instanceId)?.secretNames).toEqual(["TOKEN", "OTHER"])
    yield* second.sessions.stop(alice, id)
    yield* second.sessions.start(alice, id, { secrets: {} })
    yield* second.stop
    expect(JSON.stringify(yield* recordsOf(stored))).not.toContain("missing")

    const third = yield* start
    expect(yield* third.sessions.start(alice, id)).toMatchObject({ state: "active" })
  })

  timed("a hanging platform delays a shutdown by 5 s at most", function* ({ simulator, start, id, sessions, stop }) {
    yield* sessions.start(alice, id)
    yield* simulator.inject({ operation: "stop", fault: { kind: "hang" } })
    const stopping = yield* Effect.fork(stop)
    yield* simulator.awaitState(({ requests }) => requests.stop === 1)
    yield* pass("6 seconds", "1 second")
    yield* Fiber.join(stopping)
    yield* simulator.clear
    const second = yield* start
    yield* simulator.awaitState(({ instances }) => instances.length === 0)
    expect(yield* second.sessions.get(alice, id)).toMatchObject({ state: "inactive", instanceId: null })
  })

  live("a removed history is replaced, and the request taken", function* ({ simulator, stored, sessions, id }) {
    const { instanceId } = yield* sessions.start(alice, id)
    const before = yield* listen(sessions, id)
    yield* Context.get(stored, SessionEvents).remove(`acme/${id}`)
    yield* sessions.send(alice, id, "hello")
    yield* before.untilLost
    const after = yield* listen(sessions, id)
    expect(after.subscription.epoch).not.toBe(before.subscription.epoch)
    const turnId = yield* sessions.send(alice, id, "hello again")
    yield* after.until(event => event.type === "turn_completed" && event.turnId === turnId)
    isDense(after.events.map(({ seq }) => seq + 1 - after.events[0]!.seq))
    yield* simulator.awaitState(({ instances }) => instances.length === 1)
    expect((yield* sessions.get(alice, id)).instanceId).not.toBe(instanceId)
  })

  timedHeard(
    "subscribers of a history that is replaced by an earlier copy are notified without a request",
    function* ({ id, listener, sessions, stored }) {
      yield* sessions.start(alice, id)
      yield* listener.until(event => event.type === "session_state" && event.state === "active")
      const { epoch } = listener.subscription
      const events = Context.get(stored, SessionEvents)
      const session = `acme/${id}`
      yield* events.remove(session)
      yield* events.open(session, epoch)
      const texts = [JSON.stringify(listener.events[0])]
      yield* events.append({ session, epoch, after: 0, timestamp: 0, texts, recoveryState: null })
      yield* inTime(yield* Effect.fork(listener.untilLost))
    }
  )

  /** A session with a subscriber, whose history and record another program removes. */
  const removed = Effect.gen(function* () {
    const { simulator, stored, sessions, id } = yield* makeSession()
    yield* sessions.start(alice, id)
    const seen = { isDeleted: false }
    yield* sessions.subscribe(alice, id, {
      onFrames: () => {},
      onDeleted: () => {
        seen.isDeleted = true
      },
      onLost: () => {}
    })
    const events = Context.get(stored, SessionEvents)
    yield* events.remove(`acme/${id}`)
    const operations = [{ op: "delete" as const, namespace: namespaceOf("acme"), key: id }]
    yield* Context.get(stored, Store).commit({ actor: "mallory", operations })
    const find = events.find(`acme/${id}`)
    return { simulator, sessions, id, seen, find }
  })

  test.scopedLive(
    "a session whose history and record were removed is not found, and its subscribers are notified",
    function* () {
      const { id, seen, sessions, simulator } = yield* removed
      expect(yield* Effect.flip(sessions.send(alice, id, "hello"))).toMatchObject({ _tag: "SessionNotFound" })
      expect(seen.isDeleted).toBe(true)
      expect(yield* Effect.flip(sessions.get(alice, id))).toMatchObject({ _tag: "SessionNotFound" })
      yield* simulator.awaitState(({ instances }) => instances.length === 0)
    }
  )

  test.scoped(
    "subscribers of a session whose history and record were removed are notified without a request",
    function* () {
      const { find, seen, simulator } = yield* removed
      yield* Effect.repeat(pass("1 second", "1 second"), { until: () => seen.isDeleted })
      yield* simulator.awaitState(({ instances }) => instances.length === 0)
      // What was left to stop its instance goes too.
      yield* Effect.repeat(Effect.zipRight(pass("1 second", "1 second"), find), { until: Option.isNone })
    }
  )

  test.scopedLive(
    "a history that is replaced by an earlier copy keeps its events, and ends with the session's state",
    function* () {
      const { start, stored } = yield* make()
      const first = yield* start
      const { epoch, id } = yield* first.sessions.create(alice, { agentType: "echo" })
      yield* first.sessions.start(alice, id)
      const { subscription } = yield* listen(first.sessions, id)
      const copied = (yield* history(subscription)).slice(0, 2)
      yield* first.stop
      const events = Context.get(stored, SessionEvents)
      const session = `acme/${id}`
      yield* events.remove(session)
      yield* events.open(session, epoch)
      const texts = copied.map(event => JSON.stringify(event))
      yield* events.append({ session, epoch, after: 0, timestamp: 0, texts, recoveryState: null })
      const { sessions } = yield* start
      const after = yield* listen(sessions, id)
      expect(after.subscription.epoch).not.toBe(epoch)
      const left = yield* history(after.subscription)
      expect(left.slice(0, 2)).toEqual(copied)
      expect(statesOf(left)).toEqual([...startStates, "inactive"])
    }
  )
})
