/** Sessions against a simulated platform: instances, turns, failures and restarts. */
import { describe, expect, it } from "@effect/vitest"
import { Context, Duration, Effect, Fiber, Layer, Redacted } from "effect"
import * as EventsInMemory from "../../../src/Gateway/SessionEvents/Memory.ts"
import { SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import { namespaceOf } from "../../../src/Gateway/Sessions/SessionRecords.ts"
import { decode } from "../../../src/Kv/Entry.ts"
import { Store, StoreUnavailable } from "../../../src/Kv/Store.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import {
  alice,
  breathe,
  endsOf,
  history,
  listen,
  make,
  mallory,
  pass,
  type Stored,
  statesOf,
  typesOf
} from "../Fixture.ts"

const recordsOf = (stored: Context.Context<Store>) =>
  Effect.map(
    Context.get(stored, Store).list({ namespace: namespaceOf("acme"), prefix: "", after: "", limit: 1000 }),
    ({ entries }) => entries.map(decode).map(({ key, value }) => ({ key, value: JSON.parse(value), text: value }))
  )

/** What is stored, with events that cannot be while they are away. */
const unsteady = (away: { is: boolean }): Layer.Layer<Stored> => {
  const events = Layer.map(EventsInMemory.layer(), context => {
    const inner = Context.get(context, SessionEvents)
    const append: typeof inner.append = append =>
      Effect.suspend(() => (away.is ? new StoreUnavailable({ reason: "away" }) : inner.append(append)))
    return Context.make(SessionEvents, { ...inner, append })
  })
  return Layer.merge(Memory.layer, events)
}

const isDense = (seqs: ReadonlyArray<number>) => expect(seqs).toEqual(seqs.map((_, index) => index + 1))

/** The states that an activation publishes. The instance then reports the same states, which say nothing new. */
const broughtUp = ["activating", "active"]

describe("Sessions", () => {
  it.scopedLive("a message activates the session, and its turn is published as events with dense numbers", () =>
    Effect.gen(function* () {
      const { simulator, start } = yield* make()
      const { sessions } = yield* start
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
      const listener = yield* listen(sessions, id)
      const turnId = yield* sessions.send(alice, id, "hello there")
      yield* listener.until(event => event.type === "turn_completed" && event.turnId === turnId)
      expect(statesOf(listener.events)).toEqual(broughtUp)
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
  )

  it.scopedLive("another tenant finds nothing", () =>
    Effect.gen(function* () {
      const { start } = yield* make()
      const { sessions } = yield* start
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
      expect(yield* Effect.flip(sessions.get(mallory, id))).toMatchObject({ _tag: "SessionNotFound" })
      expect(yield* sessions.list(mallory)).toEqual({ sessions: [] })
      expect((yield* sessions.list(alice)).sessions).toHaveLength(1)
    })
  )

  it.scopedLive("concurrent messages create one instance, and turns follow in the order of the messages", () =>
    Effect.gen(function* () {
      const { simulator, start } = yield* make()
      const { sessions } = yield* start
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
      const listener = yield* listen(sessions, id)
      const turnIds = yield* Effect.all(
        [1, 2, 3, 4, 5].map(n => sessions.send(alice, id, `message ${n}`)),
        { concurrency: "unbounded" }
      )
      yield* listener.until(event => event.type === "turn_completed" && event.turnId === turnIds.at(-1))
      const started = listener.events.flatMap(event => (event.type === "turn_started" ? [event.turnId] : []))
      expect(started).toEqual(turnIds)
      expect((yield* simulator.state).created).toBe(1)
    })
  )

  it.scopedLive("concurrent calls share one transition, wherever their fibers yield", () =>
    Effect.gen(function* () {
      const { simulator, start } = yield* make()
      const { sessions } = yield* start
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
  )

  it.scoped("an interrupted caller of an activation, also the first one, does not affect others", () =>
    Effect.gen(function* () {
      const { simulator, start } = yield* make()
      const { sessions } = yield* start
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
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
  )

  it.scoped("an activation has a time limit, and the next one takes over its instance", () =>
    Effect.gen(function* () {
      const { simulator, start } = yield* make({ settings: { activationTimeout: Duration.seconds(20) } })
      const { sessions } = yield* start
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
      const listener = yield* listen(sessions, id)
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
      yield* pass("12 seconds", "1 second")
      expect((yield* Fiber.join(again)).state).toBe("active")
      const expected = ["activating", "error", ...broughtUp]
      yield* listener.until(() => statesOf(listener.events).length >= expected.length)
      expect(statesOf(listener.events)).toEqual(expected)
      expect(yield* simulator.state).toMatchObject({ created: 1, instances: [{ connections: 1 }] })
    })
  )

  it.scoped("only a session without subscribers and turns is stopped when idle", () =>
    Effect.gen(function* () {
      const { simulator, start } = yield* make()
      const { sessions } = yield* start
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
      // Whoever needs it has it again.
      expect((yield* sessions.start(alice, idle)).state).toBe("active")
    })
  )

  it.scopedLive("stopping a session during its activation leaves no instance", () =>
    Effect.gen(function* () {
      const { simulator, start } = yield* make()
      const { sessions } = yield* start
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
      const listener = yield* listen(sessions, id)
      yield* simulator.inject({ operation: "create", times: 1, fault: { kind: "latency", millis: 100 } })
      const sending = yield* Effect.fork(Effect.flip(sessions.send(alice, id, "hello")))
      yield* simulator.awaitState(({ requests }) => requests.create === 1)
      expect(yield* sessions.stop(alice, id)).toMatchObject({ state: "inactive", instanceId: null })
      expect(yield* Fiber.join(sending)).toMatchObject({ _tag: "SessionNotActive" })
      yield* simulator.awaitState(({ instances }) => instances.length === 0)
      expect(statesOf(listener.events)).toEqual(["activating", "deactivating", "inactive"])
      expect(endsOf(listener.events)).toEqual({})
    })
  )

  it.scopedLive("a lost connection is re-established, with every event once and in order", () =>
    Effect.gen(function* () {
      const { start } = yield* make()
      const { sessions } = yield* start
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
      const listener = yield* listen(sessions, id)
      const turnId = yield* sessions.send(alice, id, "/drop")
      yield* listener.until(event => event.type === "turn_completed" && event.turnId === turnId)
      const expected = [...broughtUp, "reconnecting", "active"]
      yield* listener.until(() => statesOf(listener.events).length >= expected.length)
      expect(statesOf(listener.events)).toEqual(expected)
      const text = listener.events.flatMap(event => (event.type === "text_delta" ? [event.text] : []))
      expect(text).toEqual(["before ", "after"])
      expect(endsOf(listener.events)).toEqual({ [turnId]: ["turn_completed"] })
    })
  )

  it.scopedLive("however an instance ends, each of its turns ends once, and the session can be activated again", () =>
    Effect.gen(function* () {
      const { simulator, start } = yield* make()
      const { sessions } = yield* start
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
      const listener = yield* listen(sessions, id)
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
  )

  it.scopedLive("with every type of event each turn ends once, and the end of the instance ends the session", () =>
    Effect.gen(function* () {
      const { simulator, start } = yield* make()
      const { sessions } = yield* start
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
      const listener = yield* listen(sessions, id)
      const turnId = yield* sessions.send(alice, id, "/all")
      yield* listener.until(event => event.type === "session_state" && event.state === "error")
      yield* simulator.awaitState(({ instances }) => instances.length === 0)
      const ends = endsOf(listener.events)
      expect(ends[turnId]).toEqual(["turn_completed"])
      expect(ends[`${turnId}-failing`]).toEqual(["turn_errored"])
      expect(ends[`${turnId}-cancelled`]).toEqual(["turn_interrupted"])
      expect(new Set(typesOf(listener.events)).size).toBeGreaterThan(35)
    })
  )

  it.scopedLive("a shutdown stops all instances, and records the state of each session", () =>
    Effect.gen(function* () {
      const { simulator, start, stored } = yield* make()
      const first = yield* start
      const ids = yield* Effect.forEach([1, 2, 3], () =>
        Effect.map(first.sessions.create(alice, { agentType: "echo" }), ({ id }) => id)
      )
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
      expect(statesOf(events)).toEqual([...broughtUp, "deactivating", "inactive"])
    })
  )

  it.scopedLive(
    "a gateway that was killed is recovered from: the instance goes, what was seen stays, the turn ends",
    () =>
      Effect.gen(function* () {
        const { simulator, start } = yield* make()
        const first = yield* start
        const { id } = yield* first.sessions.create(alice, { agentType: "echo" })
        const before = yield* listen(first.sessions, id)
        const turnId = yield* first.sessions.send(alice, id, "/hang")
        yield* before.until(event => event.type === "turn_started")
        yield* first.kill
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
  )

  it.scopedLive("an instance that came up while the gateway was killed is found by its key, and stopped", () =>
    Effect.gen(function* () {
      const { simulator, start } = yield* make()
      const first = yield* start
      const { id } = yield* first.sessions.create(alice, { agentType: "echo" })
      yield* simulator.inject({ operation: "create", times: 1, fault: { kind: "latency", millis: 50 } })
      yield* Effect.fork(first.sessions.start(alice, id))
      yield* simulator.awaitState(({ requests }) => requests.create === 1)
      yield* first.kill
      yield* simulator.awaitState(({ instances }) => instances.length === 1)
      const second = yield* start
      yield* simulator.awaitState(({ instances }) => instances.length === 0)
      expect((yield* second.sessions.get(alice, id)).state).toBe("inactive")
      expect((yield* simulator.state).created).toBe(1)
    })
  )

  it.scopedLive("a deleted session is gone with its history, its instance and its record", () =>
    Effect.gen(function* () {
      const { simulator, start, stored } = yield* make()
      const { sessions } = yield* start
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
      yield* sessions.start(alice, id)
      yield* sessions.remove(alice, id)
      expect((yield* simulator.state).instances).toEqual([])
      expect(yield* recordsOf(stored)).toEqual([])
      expect(yield* Effect.flip(sessions.remove(alice, id))).toMatchObject({ _tag: "SessionNotFound" })
      expect(yield* Effect.flip(sessions.send(alice, id, "hello"))).toMatchObject({ _tag: "SessionNotFound" })
    })
  )

  it.scopedLive("starting a session that is being deleted fails, and creates no instance", () =>
    Effect.gen(function* () {
      const { simulator, start } = yield* make()
      const { sessions } = yield* start
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
  )

  it.scopedLive("secrets are in no record and no event", () =>
    Effect.gen(function* () {
      const { start, stored } = yield* make()
      const { sessions } = yield* start
      const { id } = yield* sessions.create(alice, {
        agentType: "echo",
        secrets: { TOKEN: Redacted.make("very-secret-text") }
      })
      const listener = yield* listen(sessions, id)
      yield* sessions.start(alice, id)
      const told = JSON.stringify([yield* recordsOf(stored), listener.events, yield* sessions.list(alice)])
      expect(told).toContain("TOKEN")
      expect(told).not.toContain("very-secret-text")
    })
  )

  it.scopedLive("a session with lost secrets is not activated without them, unless that is requested", () =>
    Effect.gen(function* () {
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
  )

  for (const inference of [true, false]) {
    it.scopedLive(`the title is ${inference ? "made up" : "the first words"} after the first turn`, () =>
      Effect.gen(function* () {
        const { simulator, start } = yield* make({ inference })
        const { sessions } = yield* start
        const { id } = yield* sessions.create(alice, { agentType: "echo" })
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
    )
  }

  it.scoped("an unreachable instance is given up after ten minutes, and its turns end", () =>
    Effect.gen(function* () {
      const { simulator, start } = yield* make()
      const { sessions } = yield* start
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
      const listener = yield* listen(sessions, id)
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
  )

  it.scoped("a platform that does not stop its instances delays the shutdown by five seconds at most", () =>
    Effect.gen(function* () {
      const { simulator, start } = yield* make()
      const first = yield* start
      const { id } = yield* first.sessions.create(alice, { agentType: "echo" })
      yield* first.sessions.start(alice, id)
      yield* simulator.inject({ operation: "stop", fault: { kind: "hang" } })
      const stopping = yield* Effect.fork(first.stop)
      yield* simulator.awaitState(({ requests }) => requests.stop === 1)
      yield* pass("6 seconds", "1 second")
      yield* Fiber.join(stopping)
      yield* simulator.clear
      const second = yield* start
      yield* simulator.awaitState(({ instances }) => instances.length === 0)
      expect(yield* second.sessions.get(alice, id)).toMatchObject({ state: "inactive", instanceId: null })
    })
  )

  it.scopedLive("events are delivered only after they are stored", () =>
    Effect.gen(function* () {
      const away = { is: false }
      const { simulator, start } = yield* make({ stored: unsteady(away) })
      const { sessions } = yield* start
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
      const listener = yield* listen(sessions, id)
      yield* sessions.start(alice, id)
      const turnId = yield* sessions.send(alice, id, "/ask")
      const asked = yield* listener.until(event => event.type === "question_requested")
      away.is = true
      const seen = listener.events.length
      expect(yield* Effect.flip(sessions.send(alice, id, "no"))).toMatchObject({ _tag: "StoreUnavailable" })
      expect(yield* Effect.flip(sessions.stop(alice, id))).toMatchObject({ _tag: "StoreUnavailable" })
      if (asked.type === "question_requested") yield* sessions.answer(alice, id, asked.requestId, "red")
      const { instances } = yield* simulator.awaitState(({ frames }) => frames.answer === 1)
      yield* simulator.awaitState(({ instances: [instance] }) => instance!.events > instances[0]!.events + 3)
      yield* breathe
      expect(listener.events).toHaveLength(seen)
      away.is = false
      yield* listener.until(event => event.type === "turn_completed" && event.turnId === turnId)
      isDense(listener.events.map(({ seq }) => seq))
      expect(endsOf(listener.events)).toEqual({ [turnId]: ["turn_completed"] })
    })
  )

  it.scopedLive("sessions of a tenant and sessions in memory are limited", () =>
    Effect.gen(function* () {
      const { start } = yield* make({ settings: { perTenant: 3, inMemory: 2 } })
      const { sessions } = yield* start
      const ids = yield* Effect.forEach([1, 2, 3], () =>
        Effect.map(sessions.create(alice, { agentType: "echo" }), ({ id }) => id)
      )
      expect(yield* Effect.flip(sessions.create(alice, { agentType: "echo" }))).toMatchObject({
        _tag: "SessionTooLarge",
        message: "The tenant has 3 sessions; the limit is 3"
      })
      yield* sessions.create(mallory, { agentType: "echo" })
      yield* sessions.start(alice, ids[0]!)
      yield* sessions.start(alice, ids[1]!)
      expect(yield* Effect.flip(sessions.start(alice, ids[2]!))).toMatchObject({ _tag: "SessionsBusy" })
      yield* sessions.stop(alice, ids[0]!)
      expect((yield* sessions.start(alice, ids[2]!)).state).toBe("active")
    })
  )
})

/** A platform that takes no notice of idempotency keys. */
const forgetful = { limits: { idempotencyKeys: 0 } }

describe("Instances of sessions", () => {
  it.scopedLive("one that is abandoned during its creation is stopped by its id", () =>
    Effect.gen(function* () {
      const { simulator, start } = yield* make({ simulator: forgetful })
      const { sessions } = yield* start
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
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
  )

  it.scoped("one with a slow creation that nobody waits for is stopped once created", () =>
    Effect.gen(function* () {
      const { simulator, start } = yield* make({ simulator: forgetful })
      const { sessions } = yield* start
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
      yield* simulator.inject({ operation: "create", fault: { kind: "latency", millis: 25_000 } })
      const starting = yield* Effect.fork(Effect.flip(sessions.start(alice, id)))
      yield* simulator.awaitState(({ requests }) => requests.create === 1)
      const stopping = yield* Effect.fork(sessions.stop(alice, id))
      yield* pass("16 seconds", "1 second")
      expect(yield* Fiber.join(stopping)).toMatchObject({ state: "inactive" })
      expect(yield* Fiber.join(starting)).toMatchObject({ _tag: "SessionNotActive" })
      expect((yield* simulator.state).created).toBe(0)
      yield* pass("30 seconds", "1 second")
      yield* simulator.awaitState(({ created, instances }) => created === 1 && instances.length === 0)
      expect((yield* simulator.state).requests.create).toBe(1)
    })
  )

  it.scopedLive("one that the platform does not stop does not prevent users from working, and is remembered", () =>
    Effect.gen(function* () {
      const { simulator, start } = yield* make()
      const first = yield* start
      const { id } = yield* first.sessions.create(alice, { agentType: "echo" })
      const stale = (yield* first.sessions.start(alice, id)).instanceId
      yield* first.kill
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
  )

  it.scoped("pending ones are stopped beside the running one, once the platform recovers", () =>
    Effect.gen(function* () {
      const { simulator, start, stored } = yield* make()
      const { sessions } = yield* start
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
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
      expect(yield* recoveryState).toContain("debts")
      yield* simulator.remove(fault)
      yield* pass("30 seconds", "1 second")
      yield* simulator.awaitState(({ instances }) => instances.length === 1)
      expect((yield* simulator.state).instances.map(({ id }) => id)).toEqual([instanceId])
      expect(yield* sessions.get(alice, id)).toMatchObject({ state: "active", instanceId })
      expect(yield* recoveryState).not.toContain("debts")
    })
  )

  it.scoped("a session with a removed history begins a new one, with a new instance", () =>
    Effect.gen(function* () {
      const { simulator, start, stored } = yield* make()
      const { sessions } = yield* start
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
      const { instanceId } = yield* sessions.start(alice, id)
      yield* pass("2 seconds", "1 second")
      const before = yield* listen(sessions, id)
      yield* Context.get(stored, SessionEvents).remove(`acme/${id}`)
      expect(yield* Effect.flip(sessions.send(alice, id, "hello"))).toMatchObject({ _tag: "StoreUnavailable" })
      expect(yield* Effect.flip(sessions.stop(alice, id))).toMatchObject({ _tag: "StoreUnavailable" })
      yield* pass("6 seconds", "1 second")
      yield* before.untilLost
      const after = yield* listen(sessions, id)
      expect(after.subscription.epoch).not.toBe(before.subscription.epoch)
      const turnId = yield* sessions.send(alice, id, "hello again")
      yield* after.until(event => event.type === "turn_completed" && event.turnId === turnId)
      isDense(after.events.map(({ seq }) => seq + 1 - after.events[0]!.seq))
      yield* simulator.awaitState(({ instances }) => instances.length === 1)
      expect((yield* sessions.get(alice, id)).instanceId).not.toBe(instanceId)
    })
  )
})
