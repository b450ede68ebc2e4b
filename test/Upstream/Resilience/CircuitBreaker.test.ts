import { describe, expect } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Logger, Metric, TestClock } from "effect"
import * as Breaker from "../../../src/Upstream/Resilience/CircuitBreaker.ts"
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
