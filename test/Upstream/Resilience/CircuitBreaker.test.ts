import { describe, expect, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, FastCheck as fc, Logger, Metric, TestClock } from "effect"
import * as CallWindow from "../../../src/Upstream/Resilience/CallWindow.ts"
import * as Breaker from "../../../src/Upstream/Resilience/CircuitBreaker.ts"
import * as KeyedBreakers from "../../../src/Upstream/Resilience/KeyedBreakers.ts"
import * as Retries from "../../../src/Upstream/Resilience/Retries.ts"
import { times } from "../../Scale.ts"
import { test } from "../../Tests.ts"

const verdict = (exit: Exit.Exit<unknown, unknown>) =>
  Exit.isSuccess(exit) ? "success" : Exit.isInterrupted(exit) ? "abandoned" : "failure"

const open = (breaker: Breaker.Breaker) =>
  Effect.replicateEffect(Effect.either(breaker.protect(Effect.fail("broken"), verdict)), 5)

describe("Breaker", () => {
  test.scoped(
    "rejects others with a short delay while a probe is in progress, and background calls take no permit",
    function* () {
      const breaker = yield* Breaker.make("moment")
      yield* open(breaker)
      yield* TestClock.adjust("10 seconds")
      const background = yield* Effect.fork(breaker.protect(Effect.never, verdict, true))
      yield* Effect.yieldNow()
      const gate = yield* Deferred.make<void>()
      const probe = yield* Effect.fork(breaker.protect(Deferred.await(gate), verdict))
      yield* Effect.yieldNow()
      expect(yield* Effect.flip(breaker.protect(Effect.void, verdict))).toMatchObject({ retryAfterMillis: 1000 })
      yield* Fiber.interrupt(background)
      expect(yield* breaker.state).toBe("half_open")
      yield* Deferred.succeed(gate, undefined)
      yield* Fiber.join(probe)
      expect(yield* breaker.state).toBe("closed")
    }
  )

  test.scoped(
    "shows its state as a gauge, counts transitions and logs them, also those by the clock alone",
    function* () {
      const lines: Array<unknown> = []
      const logger = Logger.make(({ message }) => void lines.push(message))
      yield* Effect.gen(function* () {
        const breaker = yield* Breaker.make("seen")
        yield* open(breaker)
        yield* TestClock.adjust("9999 millis")
        expect(yield* gauge("seen")).toBe(2)
        yield* TestClock.adjust("1 millis")
        expect(yield* gauge("seen")).toBe(1)
        // A probe that fails by its own limit opens it again, and that cooldown ends by the clock as well.
        const probe = yield* Effect.fork(breaker.protect(Effect.delay(Effect.fail("slow"), "30 seconds"), verdict))
        yield* TestClock.adjust("30 seconds")
        expect(yield* gauge("seen")).toBe(2)
        yield* TestClock.adjust("20 seconds")
        expect(yield* gauge("seen")).toBe(1)
        yield* Fiber.interrupt(probe)
        // A probe that fails early brings the next change forward.
        yield* Effect.either(breaker.protect(Effect.fail("broken"), verdict))
        expect(yield* gauge("seen")).toBe(2)
        yield* TestClock.adjust("40 seconds")
        yield* breaker.protect(Effect.void, verdict)
      }).pipe(Effect.provide(Logger.replace(Logger.defaultLogger, logger)))
      expect(yield* gauge("seen")).toBe(0)
      const moves = ["closed → open", "open → half_open", "half_open → open", "half_open → closed"]
      const counts = yield* Effect.forEach(moves, move =>
        transitions("seen", ...(move.split(" → ") as [string, string]))
      )
      expect(counts).toEqual([1, 3, 2, 1])
      const logged = [0, 1, 2, 1, 2, 1, 3].map(move => `Circuit breaker ${moves[move]}`)
      expect(lines.flat()).toEqual(logged)
    }
  )
})

const gauge = (upstream: string) =>
  Effect.map(Metric.value(Metric.tagged(Breaker.stateGauge, "upstream", upstream)), ({ value }) => value)

const transitions = (upstream: string, from: string, to: string) =>
  Effect.map(
    Metric.value(
      Breaker.transitionCounter.pipe(
        Metric.tagged("upstream", upstream),
        Metric.tagged("from", from),
        Metric.tagged("to", to)
      )
    ),
    ({ count }) => count
  )

describe("breakers by key", () => {
  const fail = (breakers: KeyedBreakers.KeyedBreakers, id: string) =>
    Effect.either(breakers.of(id).protect(Effect.fail("broken"), () => "failure"))

  test.effect("are remembered for keys that fail alone, and no more than so many", function* () {
    const breakers = KeyedBreakers.make({ upstream: "keyed", label: "key", max: 3 })
    for (const id of ["a", "b", "c", "d", "e"]) yield* Effect.replicateEffect(fail(breakers, id), 5)
    expect(breakers.size()).toBe(3)
    expect(yield* breakers.of("a").state).toBe("closed")
    expect(yield* breakers.of("e").state).toBe("open")
    yield* TestClock.adjust("10 seconds")
    yield* breakers.of("e").protect(Effect.void, () => "success")
    yield* breakers.of("f").protect(Effect.void, () => "success")
    expect(breakers.size()).toBe(2)
  })

  /** Admits calls for a key that fail when the returned effect is run. */
  const admitted = (breakers: KeyedBreakers.KeyedBreakers, key: string, count: number) =>
    Effect.gen(function* () {
      const latch = yield* Effect.makeLatch(false)
      const call = breakers.of(key).protect(Effect.zipRight(latch.await, Effect.fail("late")), () => "failure")
      const fibers = yield* Effect.forkAll(Array.from({ length: count }, () => Effect.either(call)))
      yield* Effect.repeatN(Effect.yieldNow(), 10)
      return Effect.zipRight(latch.open, Fiber.join(fibers))
    })

  test.effect("do not count late verdicts on calls from before they recovered", function* () {
    const breakers = KeyedBreakers.make({ upstream: "keyed", label: "key" })
    const failLate = yield* admitted(breakers, "a", 5)
    yield* Effect.replicateEffect(fail(breakers, "a"), 5)
    yield* TestClock.adjust("10 seconds")
    yield* breakers.of("a").protect(Effect.void, () => "success")
    yield* failLate
    expect(yield* breakers.of("a").state).toBe("closed")
    expect(breakers.size()).toBe(0)
  })

  test.effect("do not count late verdicts on calls from before they were dropped, but those since", function* () {
    const breakers = KeyedBreakers.make({ upstream: "keyed", label: "key", max: 1 })
    const failLate = yield* admitted(breakers, "a", 1)
    yield* fail(breakers, "a")
    yield* fail(breakers, "b")
    const failSince = yield* admitted(breakers, "a", 1)
    yield* Effect.replicateEffect(fail(breakers, "a"), 4)
    yield* failLate
    expect(yield* breakers.of("a").state).toBe("closed")
    yield* failSince
    expect(yield* breakers.of("a").state).toBe("open")
  })

  test.effect("count verdicts on concurrent calls of which one succeeds", function* () {
    const breakers = KeyedBreakers.make({ upstream: "keyed", label: "key" })
    const failLate = yield* admitted(breakers, "a", 5)
    yield* fail(breakers, "a")
    yield* breakers.of("a").protect(Effect.void, () => "success")
    yield* failLate
    expect(yield* breakers.of("a").state).toBe("open")
  })
})

const settings = Retries.budgetDefaults
const numRuns = times(300)

const deposits = (budget: Retries.BudgetState, now: number, count: number): Retries.BudgetState => {
  let after = budget
  for (let i = 0; i < count; i++) after = Retries.deposit(after, now, settings)
  return after
}

/** Takes all that there is. */
const drain = (budget: Retries.BudgetState, now: number): readonly [number, Retries.BudgetState] => {
  let [count, after] = [0, budget]
  for (;;) {
    const [granted, next] = Retries.withdraw(after, now, settings)
    if (!granted) return [count, after]
    after = next
    count++
  }
}

describe("a retry budget", () => {
  it("allows three a second over its window where there are hardly any calls", () => {
    expect(drain(CallWindow.empty, 0)[0]).toBe(30)
  })

  it("allows a fifth of the recent calls in addition", () => {
    expect(drain(deposits(CallWindow.empty, 0, 1000), 0)[0]).toBe(230)
  })

  it("forgets calls and retries after ten seconds", () => {
    const [, spent] = drain(deposits(CallWindow.empty, 0, 1000), 0)
    expect(drain(spent, 9_999)[0]).toBe(0)
    expect(drain(spent, 10_000)[0]).toBe(30)
    expect(drain(deposits(spent, 10_000, 100), 10_000)[0]).toBe(50)
  })

  it("never allows more than a fifth of all calls and 30 for each ten seconds begun, and stays small", () => {
    const step = fc.record({ wait: fc.integer({ min: 0, max: 4000 }), calls: fc.nat(200), tries: fc.nat(200) })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), steps => {
        let [budget, now, calls, retries] = [CallWindow.empty, 0, 0, 0]
        for (const { wait, calls: more, tries } of steps) {
          now += wait
          budget = deposits(budget, now, more)
          calls += more
          for (let i = 0; i < tries; i++) {
            const [granted, after] = Retries.withdraw(budget, now, settings)
            budget = after
            if (granted) retries++
          }
          expect(budget.length).toBeLessThanOrEqual(settings.window.slots)
          expect(retries).toBeLessThanOrEqual(0.2 * calls + 30 * (1 + Math.ceil(now / 9000)))
        }
      }),
      { numRuns }
    )
  })
})
