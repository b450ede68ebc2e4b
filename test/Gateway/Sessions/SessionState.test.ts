/** The parts of which sessions and their socket are made, each by itself. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Either, Exit, Fiber, FastCheck as fc, Option, Random, TestClock, TestContext } from "effect"
import * as Turns from "../../../src/Gateway/EventMapping/Turns.ts"
import type { EventBody } from "../../../src/Gateway/Protocol/Event.ts"
import * as Memory from "../../../src/Gateway/SessionEvents/Memory.ts"
import { SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import { ingest, Seen } from "../../../src/Gateway/Sessions/Ingest.ts"
import * as Journal from "../../../src/Gateway/Sessions/Journal.ts"
import * as Session from "../../../src/Gateway/Sessions/SessionState.ts"
import * as Title from "../../../src/Gateway/Sessions/Title.ts"
import type { Frame } from "../../../src/Gateway/Sessions.ts"
import { Bucket } from "../../../src/Gateway/Socket/Bucket.ts"
import { Lanes } from "../../../src/Gateway/Socket/Lanes.ts"
import { StoreUnavailable } from "../../../src/Kv/Store.ts"
import { Undelivered } from "../../../src/Upstream/InstanceConnection.ts"

const numRuns = 100 * Number(process.env.SOAK ?? 1)

const running: Session.Standing = {
  state: "active",
  lease: { key: "k", instanceId: "i" },
  debts: [],
  turns: Turns.none
}

const debt: Session.Debt = { key: "i", instanceId: "i", refusals: 0 }

const texts = fc.dictionary(fc.string(), fc.string(), { maxKeys: 2, noNullPrototype: true })

const platform = (type: string, payload: Record<string, unknown> = {}, id?: string) => ({
  id,
  type,
  timestamp: undefined,
  payload: { type, ...payload }
})

const accepted = (...turnIds: ReadonlyArray<string>): Session.Standing => ({
  ...running,
  turns: { ...Turns.none, open: new Map(turnIds.map(turnId => [turnId, "told"])) }
})

const typesOf = (events: ReadonlyArray<EventBody>) => events.map(({ type }) => type)

describe("A session as a machine", () => {
  const triggers: ReadonlyArray<Session.Trigger> = [
    "activate",
    "activated",
    "deactivate",
    "deactivated",
    "disconnected",
    "reconnected",
    "ended",
    "failed",
    "recovered"
  ]

  it("tells of each move, and of nothing where a trigger means nothing", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...triggers)), triggers => {
        let standing = Session.initial
        for (const trigger of triggers) {
          const step = Session.move(standing, trigger)
          const next = Session.next(standing.state, trigger)
          expect(step.events).toEqual(next === undefined ? [] : [{ type: "session_state", state: next }])
          expect(step.standing.state).toBe(next ?? standing.state)
          standing = step.standing
        }
      }),
      { numRuns }
    )
  })

  it("comes up, is lost and found, and goes down", () => {
    const path: ReadonlyArray<readonly [Session.Trigger, string]> = [
      ["activate", "activating"],
      ["activated", "active"],
      ["disconnected", "reconnecting"],
      ["reconnected", "active"],
      ["deactivate", "deactivating"],
      ["deactivated", "inactive"],
      ["activate", "activating"],
      ["failed", "error"],
      ["activate", "activating"],
      ["activated", "active"],
      ["ended", "inactive"]
    ]
    let standing = Session.initial
    for (const [trigger, state] of path) {
      standing = Session.move(standing, trigger).standing
      expect(standing.state).toBe(state)
    }
    expect(Session.next("inactive", "activated")).toBeUndefined()
    expect(Session.next("inactive", "deactivate")).toBeUndefined()
    expect(Session.next("deactivating", "activated")).toBeUndefined()
  })

  it("whatever it was, after a restart nothing of it runs, and each open turn has ended", () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...(["inactive", "activating", "active", "reconnecting", "deactivating", "error"] as const)),
        fc.uniqueArray(fc.string({ minLength: 1 }), { maxLength: 5 }),
        fc.uniqueArray(fc.string({ minLength: 1 }), { maxLength: 3 }),
        fc.option(fc.record({ agentType: fc.string(), deployment: fc.constant({ a: [1] }), environment: texts })),
        (state, turnIds, keys, request) => {
          const debts = keys.map((key, index) => ({ key, instanceId: index === 0 ? null : key, refusals: index }))
          const before = { ...accepted(...turnIds), state, debts, ...(request === null ? {} : { request }) }
          const kept = Either.getOrThrow(Session.fromBookmark(state, Session.toBookmark(before)))
          expect(kept.lease).toEqual(before.lease)
          expect(kept.debts).toEqual(debts)
          expect(kept.request).toEqual(before.request)
          const { standing, events } = Session.recover(kept)
          expect(["inactive", "error"]).toContain(standing.state)
          expect(standing.turns.open.size).toBe(0)
          expect(standing.lease).toBeNull()
          expect(standing.debts).toEqual([...debts, { ...before.lease, refusals: 0 }])
          expect(typesOf(events).filter(type => type === "turn_errored")).toHaveLength(turnIds.length)
          expect(Session.recover(standing).events).toEqual([])
        }
      ),
      { numRuns }
    )
  })

  it("takes a message up only where it runs and has room, and tells what was written", () => {
    const message = { turnId: "t", content: "hello", sub: "alice" }
    const step = Either.getOrThrow(Session.accept(running, message, 1))
    expect(step.events).toEqual([{ type: "turn_started", ...message }])
    expect(Session.accept(step.standing, { ...message, turnId: "u" }, 1)).toEqual(Either.left({ is: "full", open: 1 }))
    expect(Session.accept({ ...running, state: "error" }, message, 1)).toEqual(Either.left({ is: "not_running" }))
    const kept = Either.getOrThrow(Session.fromBookmark("active", Session.toBookmark(step.standing)))
    expect(typesOf(Session.recover(kept).events)).toEqual(["turn_errored", "session_state"])
    // An earlier version told of a turn when the agent began it.
    const early = Either.getOrThrow(Session.fromBookmark("active", '{"lease":null,"turns":[["t","accepted"]]}'))
    expect(typesOf(Session.recover(early).events)).toEqual(["turn_started", "turn_errored", "session_state"])
  })

  it("leaves no bookmark where nothing is left to do", () => {
    expect(Session.toBookmark(Session.initial)).toBeNull()
    expect(Session.toBookmark(running)).not.toBeNull()
    expect(Session.toBookmark({ ...accepted("t"), lease: null })).not.toBeNull()
    expect(Session.toBookmark({ ...Session.initial, debts: [debt] })).not.toBeNull()
    // As earlier versions have written it.
    const early = Session.fromBookmark("inactive", '{"lease":null,"debts":["i"],"turns":[]}')
    expect(Either.getOrThrow(early).debts).toEqual([debt])
    expect(Either.isLeft(Session.fromBookmark("active", "{}"))).toBe(true)
  })
})

describe("What platform events make of a session", () => {
  it("a turn has its start, its content and its one end, however often those are told", () => {
    const events = ["turn.started", "turn.started", "message.delta", "turn.completed", "turn.failed", "turn.completed"]
    const { step } = ingest(
      accepted("t"),
      events.map(type => platform(type, { turnId: "t", messageId: "m", delta: "x", message: "failed" }))
    )
    expect(typesOf(step.events)).toEqual(["text_delta", "turn_completed"])
    expect(step.standing.turns.open.size).toBe(0)
  })

  it("a message that is refused ends its turn", () => {
    const refused = platform("error", {
      turnId: "t",
      code: "busy",
      message: "16 messages are waiting",
      retryable: true
    })
    const { step } = ingest(accepted("t"), [refused])
    expect(step.events).toMatchObject([
      { type: "error", turnId: "t" },
      { type: "turn_errored", turnId: "t", code: "busy", retryable: true }
    ])
    const started = ingest(accepted("t"), [platform("turn.started", { turnId: "t" }), refused])
    expect(typesOf(started.step.events)).toEqual(["error"])
  })

  it("messages that were lost with a connection end their turns, unless the agent has begun them by then", () => {
    const lost = new Undelivered(["a", "b", "c", "unknown"])
    const { step } = ingest(accepted("a", "b", "c", "d"), [
      platform("turn.started", { turnId: "a" }),
      platform("turn.started", { turnId: "b" }),
      platform("turn.completed", { turnId: "b" }),
      lost,
      lost
    ])
    expect(step.events).toMatchObject([
      { type: "turn_completed", turnId: "b" },
      { type: "turn_errored", turnId: "c", code: "delivery_unknown", retryable: true }
    ])
    expect([...step.standing.turns.open]).toEqual([
      ["a", "started"],
      ["d", "told"]
    ])
  })

  it("what somebody wrote is not the platform's to say", () => {
    const forged = { turnId: "own", content: "I did not write this", sub: "alice", clientMessageId: "1" }
    expect(ingest(running, [platform("turn.started", forged)]).step.events).toEqual([
      { type: "turn_started", turnId: "own" }
    ])
  })

  it("an error that names no turn refuses none", () => {
    const { step } = ingest(accepted("t"), [
      platform("error", { code: "quota", message: "80 % of the quota is used" }),
      platform("turn.started", { turnId: "t" }),
      platform("turn.completed", { turnId: "t" })
    ])
    expect(typesOf(step.events)).toEqual(["error", "turn_completed"])
  })

  it("an instance that fails says why, and its turns say that they went with it", () => {
    const { step } = ingest(accepted("t"), [platform("instance.failed", { code: "oom", message: "out of memory" })])
    expect(step.events.filter(({ type }) => type.endsWith("error") || type === "turn_errored")).toMatchObject([
      { type: "error", code: "oom", message: "out of memory" },
      { type: "turn_errored", code: "oom", message: "The instance failed during the turn: out of memory" }
    ])
  })

  it("an instance that ends takes its turns along, and what it says after that is left out", () => {
    for (const [type, state] of [
      ["instance.stopped", "inactive"],
      ["instance.failed", "error"]
    ] as const) {
      const { step } = ingest(accepted("a", "b"), [
        platform("instance.stopping"),
        platform(type, { message: "no more tea" }),
        platform("turn.completed", { turnId: "a" })
      ])
      expect(step.standing).toMatchObject({ state, lease: running.lease })
      expect(step.standing.turns.open.size).toBe(0)
      expect(typesOf(step.events).filter(type => type === "turn_errored")).toHaveLength(2)
      expect(step.events.at(-1)).toMatchObject({ type: "session_state", state })
    }
  })

  it("passes on what the instance says of itself, and goes on running", () => {
    const { step } = ingest(accepted("t"), [
      platform("instance.starting", { message: "pulling the image" }),
      platform("instance.ready"),
      platform("turn.started", { turnId: "t" }),
      platform("instance.stopping", { reason: "asked" })
    ])
    expect(step.events).toEqual([
      { type: "session_state", state: "activating", reason: "pulling the image" },
      { type: "session_state", state: "active" },
      { type: "session_state", state: "deactivating", reason: "asked" }
    ])
    expect(step.standing.state).toBe("active")
    expect([...step.standing.turns.open.keys()]).toEqual(["t"])
  })

  it("says what was left out", () => {
    const { step, dropped, malformed } = ingest(running, [
      platform("silence.kept"),
      platform("tool.call", {}),
      platform("heartbeat")
    ])
    expect(step.events).toEqual([])
    expect(dropped).toEqual(["silence.kept", "tool.call"])
    expect(malformed).toEqual(["tool.call"])
  })

  it("events that come again are recognised as long as they are remembered", () => {
    const seen = new Seen(3)
    const ids = ["a", "b", "a", "c", "d", "b", "a", undefined, undefined]
    expect(ids.map(id => seen.isNews(platform("log", {}, id)))).toEqual([
      true,
      true,
      false,
      true,
      true,
      false,
      true,
      true,
      true
    ])
  })
})

describe("A journal", () => {
  /** A keeper that fails now and then, before or after it has done what it was asked. */
  const moody = (inner: SessionEvents["Type"]): SessionEvents["Type"] => ({
    ...inner,
    append: append =>
      Effect.flatMap(Random.nextIntBetween(0, 6), chance => {
        const lost = new StoreUnavailable({ reason: "moody" })
        if (chance === 0) return lost
        // It hangs, and is done when nobody waits any more.
        if (chance === 4) {
          const late = Effect.delay(Effect.ignore(inner.append(append)), "150 millis")
          return Effect.zipRight(Effect.forkDaemon(late), lost)
        }
        return chance === 1 ? Effect.zipRight(inner.append(append), lost) : inner.append(append)
      }),
    read: (session, after, limit) =>
      Effect.flatMap(Random.nextBoolean, isWell =>
        isWell ? inner.read(session, after, limit) : new StoreUnavailable({ reason: "moody" })
      )
  })

  it.effect("a step that must not get lost is given up once the history itself is lost", () =>
    Effect.gen(function* () {
      const events = yield* SessionEvents
      const journal = yield* Journal.make({
        session: "t/s",
        sessionId: "s",
        events,
        traceId: Effect.succeed("0".repeat(32)),
        history: yield* events.open("t/s", "e"),
        standing: running,
        onStep: () => {}
      })
      yield* events.remove("t/s")
      const step = (standing: Session.Standing) => Session.move(standing, "disconnected")
      const fiber = yield* Effect.fork(journal.updateSurely(step))
      yield* TestClock.adjust("1 hour")
      expect(yield* Fiber.poll(fiber)).toEqual(Option.some(Exit.void))
      expect(journal.isLost()).toBe(true)
      expect(journal.standing()).toBe(running)
      yield* journal.updateSurely(step)
    }).pipe(Effect.provide(Memory.layer()))
  )

  it.effect("a step that undoes one in doubt waits until the store has told what became of that one", () =>
    Effect.gen(function* () {
      const events = yield* SessionEvents
      let hanging: Effect.Effect<void, unknown> | undefined
      let isHanging = false
      const append: typeof events.append = request =>
        Effect.suspend(() => {
          if (!isHanging) return events.append(request)
          hanging ??= events.append(request)
          return new StoreUnavailable({ reason: "a commit does not come back" })
        })
      const journal = yield* Journal.make({
        session: "t/s",
        sessionId: "s",
        events: { ...events, append },
        traceId: Effect.succeed("0".repeat(32)),
        history: yield* events.open("t/s", "e"),
        standing: running,
        onStep: () => {}
      })
      const begin = (standing: Session.Standing): Session.Step => {
        const { turns, events } = Turns.step(standing.turns, { type: "turn_started", turnId: "turn" })
        return { standing: { ...standing, turns }, events }
      }
      yield* journal.update(standing => Session.move(standing, "disconnected"))
      isHanging = true
      yield* Effect.flip(journal.update(begin))
      const ended = yield* Effect.fork(
        journal.updateSurely(standing => Session.endTurns(standing, Session.errored("not_recorded", "no")))
      )
      yield* TestClock.adjust("5 seconds")
      // The store takes the beginning after all.
      isHanging = false
      yield* hanging!
      yield* TestClock.adjust("5 seconds")
      yield* Fiber.join(ended)
      const types = Option.getOrThrow(yield* events.read("t/s", 0, 10)).events.map(({ text }) => JSON.parse(text).type)
      expect(types).toEqual(["session_state", "turn_started", "turn_errored"])
      expect(journal.standing().turns.open.size).toBe(0)
    }).pipe(Effect.provide(Memory.layer()))
  )

  it.effect("stores each step once and tells it once, whatever the store says about it", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(fc.integer(), fc.integer({ min: 1, max: 12 }), (seed, count) =>
          Effect.runPromise(
            Effect.gen(function* () {
              const inner = yield* SessionEvents
              const history = yield* inner.open("t/s", "e")
              const told: Array<Frame> = []
              const journal = yield* Journal.make({
                session: "t/s",
                sessionId: "s",
                events: moody(inner),
                traceId: Effect.succeed("0".repeat(32)),
                history,
                standing: running,
                onStep: (_step, frames) => told.push(...frames)
              })
              const turnIds = Array.from({ length: count }, (_, i) => `turn-${i}`)
              const bodies = (turnId: string): ReadonlyArray<EventBody> => [
                { type: "turn_started", turnId },
                { type: "turn_completed", turnId }
              ]
              const work = Effect.forEach(
                turnIds,
                turnId =>
                  Effect.zipRight(
                    // One that may fail, and whose failure leaves open whether it counts.
                    Effect.either(
                      journal.update(standing => ({ standing, events: [{ type: "text_delta", text: turnId }] }))
                    ),
                    journal.updateSurely(standing => ({ standing, events: bodies(turnId) }))
                  ),
                { concurrency: 3, discard: true }
              )
              const time = Effect.forever(Effect.zipRight(TestClock.adjust("1 second"), Effect.yieldNow()))
              yield* Effect.raceFirst(work, time)
              const kept = Option.getOrThrow(yield* inner.read("t/s", 0, 1000))
              expect(kept.events.map(({ seq, text }) => ({ seq, text }))).toEqual(
                told.map(({ seq, data }) => ({ seq, text: data.toString() }))
              )
              expect(told.map(({ seq }) => seq)).toEqual(told.map((_, index) => index + 1))
              expect(journal.history().headSeq).toBe(told.length)
              for (const type of ["turn_started", "turn_completed"]) {
                const ids = told.flatMap(({ data }) => {
                  const event = JSON.parse(data.toString()) as { type: string; turnId: string }
                  return event.type === type ? [event.turnId] : []
                })
                expect(ids.sort()).toEqual([...turnIds].sort())
              }
            }).pipe(
              Effect.provide(Memory.layer()),
              Effect.withRandom(Random.make(seed)),
              Effect.provide(TestContext.TestContext)
            )
          )
        ),
        { numRuns: Math.ceil(numRuns / 4) }
      )
    )
  )
})

describe("Titles", () => {
  it("are the first words of a message, within a line", () => {
    expect(Title.titleOf("  Hello \n there ")).toBe("Hello there")
    expect(Title.titleOf("x".repeat(200))).toBe(`${"x".repeat(60)}…`)
    expect(Title.titleOf(`${"word ".repeat(30)}`)).toMatch(/^(word ){8,11}word…?$/)
    fc.assert(
      fc.property(fc.fullUnicodeString({ maxLength: 300 }), text => {
        const title = Title.titleOf(text)
        expect(title.length).toBeLessThanOrEqual(61)
        expect(title.isWellFormed()).toBe(true)
        expect(title).not.toMatch(/[\r\n]/)
      }),
      { numRuns }
    )
  })

  it("are taken from a model's answer as far as that is one", () => {
    expect(Title.fromAnswer('"Tides and the Moon"\n\nHope that helps!')).toBe("Tides and the Moon")
    expect(Title.fromAnswer("## **Tides**")).toBe("Tides")
    expect(Title.fromAnswer(" \n")).toBeUndefined()
  })

  it("are made of the beginning of a text, however long and odd it is", () => {
    // With one look back for each blank these would take hours.
    const blanks = " ".repeat(4_000_000)
    expect(Title.fromAnswer(`"Tides${blanks}and the Moon"`)).toBe("Tides")
    expect(Title.fromAnswer(`${blanks}Tides${blanks}`)).toBe("Tides")
    expect(Title.fromAnswer(`a${"*".repeat(4_000_000)}b`)).toBe("a")
    expect(Title.fromAnswer(`a${"*".repeat(100)}b`)).toBe(`a${"*".repeat(59)}…`)
    expect(Title.titleOf(`a${blanks}b`)).toBe("a")
    expect(Title.titleOf(`${"a".repeat(59)}😀b`)).toBe(`${"a".repeat(59)}…`)
    expect(Title.titleOf(`a${" ".repeat(998)}😀`)).toBe("a")
    expect(Title.titleOf("\ud83d")).toBe("\ufffd")
  })
})

describe("A bucket", () => {
  it("lets through its capacity and what is refilled, and counts the refusals until it is full again", () => {
    const bucket = new Bucket(3, 1, 0)
    expect([1, 2, 3].map(() => bucket.take(0).taken)).toEqual([true, true, true])
    expect(bucket.take(0)).toEqual({ taken: false, refusals: 1 })
    expect(bucket.take(500)).toEqual({ taken: false, refusals: 2 })
    expect(bucket.take(1000).taken).toBe(true)
    expect(bucket.take(1001)).toEqual({ taken: false, refusals: 3 })
    expect(bucket.take(10_000).taken).toBe(true)
    expect([1, 2].map(() => bucket.take(10_000).taken)).toEqual([true, true])
    expect(bucket.take(10_000)).toEqual({ taken: false, refusals: 1 })
  })
})

describe("Lanes", () => {
  const item = (log: Array<string>, name: string, ends: Map<string, (failure?: string) => void>, isBound = true) => ({
    isBound,
    begin: (onEnd: (failure: string | undefined) => void) => {
      log.push(`begin ${name}`)
      ends.set(name, failure => onEnd(failure))
    },
    abandon: (failure: string) => log.push(`abandon ${name}: ${failure}`)
  })

  it("do one thing at a time, each lane by itself, and give up what waits behind a failure", () => {
    const log: Array<string> = []
    const ends = new Map<string, (failure?: string) => void>()
    const lanes = new Lanes<string>()
    for (const name of ["a", "b", "c", "d"]) lanes.add("one", item(log, name, ends))
    lanes.add("one", item(log, "free", ends, false))
    lanes.add("two", item(log, "x", ends))
    expect(log).toEqual(["begin a", "begin x"])
    ends.get("a")!()
    expect(log.at(-1)).toBe("begin b")
    ends.get("b")!("no")
    expect(log.slice(-3)).toEqual(["abandon c: no", "abandon d: no", "begin free"])
    ends.get("free")!()
    lanes.add("one", item(log, "e", ends))
    expect(log.at(-1)).toBe("begin e")
    lanes.add("one", item(log, "f", ends))
    lanes.abandon("one", "stopped")
    expect(log.at(-1)).toBe("abandon f: stopped")
    ends.get("e")!()
    ends.get("x")!()
    lanes.add("one", item(log, "g", ends))
    expect(log.at(-1)).toBe("begin g")
  })
})
