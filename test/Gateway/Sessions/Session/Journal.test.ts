/** The journal of a session on a store that fails. */

import { describe, expect, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, FastCheck as fc, Option, Random, TestClock, TestContext } from "effect"
import type { EventBody } from "../../../../src/Gateway/Protocol/Event.ts"
import * as Memory from "../../../../src/Gateway/SessionEvents/Memory.ts"
import { SessionEvents } from "../../../../src/Gateway/SessionEvents.ts"
import { Journal } from "../../../../src/Gateway/Sessions/Session/Journal.ts"
import { makePaced } from "../../../../src/Gateway/Sessions/Session/SessionCore.ts"
import * as State from "../../../../src/Gateway/Sessions/Session/SessionState.ts"
import type { Frame } from "../../../../src/Gateway/Sessions.ts"
import { StoreUnavailable } from "../../../../src/Kv/Store.ts"
import { breathe } from "../../../../src/Simulator/Testing/Time.ts"
import { times } from "../../../Scale.ts"
import { test } from "../../../Tests.ts"

const numRuns = times(100)

const running: State.SessionState = {
  ...State.initial,
  lifecycle: "active",
  instance: { key: "k", instanceId: "i" }
}

const now = Effect.clockWith(clock => Effect.succeed(() => clock.unsafeCurrentTimeMillis()))

/** A journal of a new history. */
const journalOn = (events: SessionEvents["Type"], onFrames: (frames: ReadonlyArray<Frame>) => void = () => {}) =>
  Effect.gen(function* () {
    return new Journal({
      ...{ session: "t/s", sessionId: "s", events, now: yield* now, state: running, onTaken: () => {} },
      traceId: Effect.succeed("0".repeat(32)),
      history: yield* events.open("t/s", "e"),
      onUpdate: (_, frames) => onFrames(frames)
    })
  })

describe("A journal", () => {
  /** A session database that fails now and then, before or after it has carried out a request. */
  const moody = (inner: SessionEvents["Type"]): SessionEvents["Type"] => ({
    ...inner,
    append: append =>
      Effect.flatMap(Random.nextIntBetween(0, 6), chance => {
        const lost = new StoreUnavailable({ reason: "moody" })
        if (chance === 0) return lost
        // It hangs, and is done after the caller has stopped waiting.
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

  it.effect("gives no event an earlier time than the one before, also after the clock was set back", () =>
    Effect.gen(function* () {
      const published: Array<Frame> = []
      const journal = yield* journalOn(yield* SessionEvents, frames => published.push(...frames))
      for (const now of [2000, 1000, 3000]) {
        yield* TestClock.setTime(now)
        yield* journal.update(state => ({ state, events: [{ type: "text_delta", text: "hello" }] }))
      }
      const timestamps = published.map(({ data }) => (JSON.parse(data.toString()) as { timestamp: unknown }).timestamp)
      expect(timestamps).toEqual([2000, 2000, 3000])
    }).pipe(Effect.provide(Memory.layer()))
  )

  it.effect("a required step is abandoned when the history itself is lost", () =>
    Effect.gen(function* () {
      const events = yield* SessionEvents
      const journal = yield* journalOn(events)
      yield* events.remove("t/s")
      const update = (state: State.SessionState) => State.transition(state, "disconnected")
      const fiber = yield* Effect.fork(journal.updateWithRetry(update))
      yield* TestClock.adjust("1 hour")
      expect(yield* Fiber.poll(fiber)).toEqual(Option.some(Exit.void))
      expect(journal.isLost()).toBe(true)
      expect(journal.state()).toBe(running)
      yield* journal.updateWithRetry(update)
    }).pipe(Effect.provide(Memory.layer()))
  )

  it.effect("a step that reverses an uncertain one waits until its outcome is known", () =>
    Effect.gen(function* () {
      const events = yield* SessionEvents
      let hanging: Effect.Effect<void, unknown> | undefined
      let isHanging = false
      const append: typeof events.append = request =>
        Effect.suspend(() => {
          if (!isHanging) return events.append(request)
          hanging ??= events.append(request)
          return new StoreUnavailable({ reason: "a commit does not return" })
        })
      const journal = yield* journalOn({ ...events, append })
      const begin = (state: State.SessionState): State.Update =>
        State.applyEvent(state, { type: "turn_started", turnId: "turn" })
      yield* journal.update(state => State.transition(state, "disconnected"))
      isHanging = true
      yield* Effect.flip(journal.update(begin))
      const ended = yield* Effect.fork(
        journal.updateWithRetry(state => State.endTurns(state, State.errored("not_recorded", "no")))
      )
      yield* TestClock.adjust("5 seconds")
      // The store takes the beginning after all.
      isHanging = false
      yield* hanging!
      yield* TestClock.adjust("5 seconds")
      yield* Fiber.join(ended)
      const types = Option.getOrThrow(yield* events.read("t/s", 0, 10)).events.map(({ text }) => JSON.parse(text).type)
      expect(types).toEqual(["session_state", "turn_started", "turn_errored"])
      expect(journal.state().turns.open.size).toBe(0)
    }).pipe(Effect.provide(Memory.layer()))
  )

  it.effect("the newest of many steps of unknown outcome is found", () =>
    Effect.gen(function* () {
      const events = yield* SessionEvents
      let left = 20
      const append: typeof events.append = request =>
        Effect.suspend(() => {
          const lost = new StoreUnavailable({ reason: "no answer" })
          if (--left > 0) return lost
          return left === 0 ? Effect.zipRight(events.append(request), lost) : events.append(request)
        })
      const journal = yield* journalOn({ ...events, append })
      const begin = (turnId: string) =>
        journal.update(state => State.applyEvent(state, { type: "turn_started", turnId }))
      while (left > 0) yield* Effect.flip(begin(`turn-${left}`))
      yield* begin("next")
      expect([...journal.state().turns.open.keys()]).toEqual(["turn-1", "next"])
    }).pipe(Effect.provide(Memory.layer()))
  )

  it.effect("a step that is interrupted while the store takes it has taken effect", () =>
    Effect.gen(function* () {
      const events = yield* SessionEvents
      const stored = yield* Deferred.make<void>()
      const answered = yield* Deferred.make<void>()
      const published: Array<number> = []
      const journal = yield* journalOn(
        {
          ...events,
          append: request =>
            Effect.zipLeft(
              events.append(request),
              Effect.zipRight(Deferred.succeed(stored, undefined), Deferred.await(answered))
            )
        },
        frames => published.push(...frames.map(({ seq }) => seq))
      )
      const updating = yield* Effect.fork(journal.update(state => State.transition(state, "disconnected")))
      yield* Deferred.await(stored)
      const interrupting = yield* Effect.fork(Fiber.interrupt(updating))
      yield* Effect.yieldNow()
      yield* Deferred.succeed(answered, undefined)
      yield* Fiber.join(interrupting)
      expect(journal.state().lifecycle).toBe("reconnecting")
      yield* journal.update(state => State.transition(state, "reconnected"))
      expect(published).toEqual([1, 2])
    }).pipe(Effect.provide(Memory.layer()))
  )

  it.effect("stores and publishes each step once, whatever the store answers", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(fc.integer(), fc.integer({ min: 1, max: 12 }), (seed, count) =>
          Effect.runPromise(
            Effect.gen(function* () {
              const inner = yield* SessionEvents
              const published: Array<Frame> = []
              const journal = yield* journalOn(moody(inner), frames => published.push(...frames))
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
                    Effect.either(journal.update(state => ({ state, events: [{ type: "text_delta", text: turnId }] }))),
                    journal.updateWithRetry(state => ({ state, events: bodies(turnId) }))
                  ),
                { concurrency: 3, discard: true }
              )
              const time = Effect.forever(Effect.zipRight(TestClock.adjust("1 second"), Effect.yieldNow()))
              yield* Effect.raceFirst(work, time)
              const kept = Option.getOrThrow(yield* inner.read("t/s", 0, 1000))
              expect(kept.events.map(({ seq, text }) => ({ seq, text }))).toEqual(
                published.map(({ seq, data }) => ({ seq, text: data.toString() }))
              )
              expect(published.map(({ seq }) => seq)).toEqual(published.map((_, index) => index + 1))
              expect(journal.history().headSeq).toBe(published.length)
              for (const type of ["turn_started", "turn_completed"]) {
                const ids = published.flatMap(({ data }) => {
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

const MiB = 1024 * 1024

/** Updates of some tenants that end when the test says so. */
const make = () => {
  const paced = makePaced()
  const started: Array<string> = []
  const latches = new Map<string, Effect.Latch>()
  const update = (tenant: string, name: string, size = MiB) => {
    const latch = Effect.unsafeMakeLatch(false)
    latches.set(name, latch)
    return Effect.fork(
      paced(
        tenant,
        size,
        Effect.suspend(() => {
          started.push(name)
          return latch.await
        })
      )
    )
  }
  const end = (name: string) => Effect.zipRight(latches.get(name)!.open, breathe)
  return { update, end, started }
}

describe("large events", () => {
  test.effect(
    "of a tenant are stored one after the other, during those of another, and small ones at once",
    function* () {
      const { end, started, update } = make()
      for (const name of ["a1", "a2", "a3"]) yield* update("a", name)
      yield* update("b", "b1")
      yield* update("a", "small", 100)
      yield* breathe
      expect(started.toSorted()).toEqual(["a1", "b1", "small"])
      yield* end("a1")
      expect(started.slice(3)).toEqual(["a2"])
      yield* end("b1")
      yield* end("a2")
      expect(started.slice(3)).toEqual(["a2", "a3"])
    }
  )

  test.effect("that the store does not take delay others for two seconds", function* () {
    const { started, update } = make()
    for (const name of ["a1", "a2"]) yield* update("a", name)
    yield* breathe
    yield* TestClock.adjust("1900 millis")
    yield* breathe
    expect(started).toEqual(["a1"])
    yield* TestClock.adjust("100 millis")
    yield* breathe
    expect(started).toEqual(["a1", "a2"])
  })
})
