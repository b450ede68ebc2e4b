import { describe, expect, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Logger, Option, Scope, TestClock } from "effect"
import * as Supervision from "../../src/base/Supervision.ts"
import { test } from "../Tests.ts"

const silent = Logger.replace(Logger.defaultLogger, Logger.none)

/** Advances the clock until the work has run `wanted` times in all, at most 100 steps. */
const untilRuns = (runs: { count: number }, wanted: number, step: string) =>
  Effect.gen(function* () {
    for (let steps = 0; steps < 100 && runs.count < wanted; steps++) {
      yield* TestClock.adjust(step as "1 second")
      yield* Effect.yieldNow()
    }
    expect(runs.count).toBe(wanted)
  })

describe("supervised background work", () => {
  it.scoped("is started again after a failure, a defect and an early end", () =>
    Effect.gen(function* () {
      const runs = { count: 0 }
      const work = Effect.suspend(() => {
        runs.count++
        if (runs.count === 1) return Effect.fail("failure")
        if (runs.count === 2) throw new Error("defect")
        return Effect.void
      })
      yield* Supervision.forkScoped("test", work)
      yield* untilRuns(runs, 6, "100 millis")
    }).pipe(Effect.provide(silent))
  )

  it.effect("waits twice as long after each failure in a row, 10 s at most", () =>
    Effect.gen(function* () {
      let runs = 0
      const work = Effect.sync(() => runs++)
      const fiber = yield* Effect.fork(Supervision.forever("test", work))
      // 0.1 + 0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 6.4 s of pauses lie before the eighth run.
      yield* TestClock.adjust("12600 millis")
      expect(runs).toBe(7)
      yield* TestClock.adjust("100 millis")
      expect(runs).toBe(8)
      yield* TestClock.adjust("9999 millis")
      expect(runs).toBe(8)
      yield* TestClock.adjust("1 millis")
      expect(runs).toBe(9)
      yield* Fiber.interrupt(fiber)
    }).pipe(Effect.provide(silent))
  )

  // By the clock of the system, as finalizers wait for other processes.
  it.live("ends with its scope, also while it runs the finalizers of its own", () =>
    Effect.gen(function* () {
      const closing = yield* Deferred.make<void>()
      const isOpen = yield* Effect.makeLatch(false)
      const resource = Effect.addFinalizer(() => Effect.zipRight(Deferred.succeed(closing, undefined), isOpen.await))
      const work = Effect.scoped(
        Effect.zipRight(
          resource,
          Effect.addFinalizer(() => Effect.void)
        )
      )
      const scope = yield* Scope.make()
      yield* Supervision.forkIn("test", Effect.zipRight(work, Effect.never), scope)
      yield* Deferred.await(closing)
      const ended = yield* Effect.fork(Scope.close(scope, Exit.void))
      yield* Effect.yieldNow()
      yield* isOpen.open
      yield* Fiber.join(ended)
    }).pipe(Effect.provide(silent))
  )

  it.effect("ends with its scope", () =>
    Effect.gen(function* () {
      let runs = 0
      const count = Effect.sync(() => runs++)
      const working = Supervision.forkScoped("test", Effect.zipRight(count, Effect.never))
      yield* Effect.scoped(Effect.zipRight(working, Effect.yieldNow()))
      yield* TestClock.adjust("1 minute")
      expect(runs).toBe(1)
    }).pipe(Effect.provide(silent))
  )
})

describe("work within a limit", () => {
  test.effect("is cut within a finalizer, also where it cannot be interrupted itself", function* () {
    const begun = yield* Deferred.make<void>()
    const scope = yield* Scope.make()
    const hangs = Effect.uninterruptible(Effect.zipRight(Deferred.succeed(begun, undefined), Effect.never))
    yield* Scope.addFinalizer(scope, Supervision.within("1 second", hangs))
    const closing = yield* Effect.fork(Scope.close(scope, Exit.void))
    yield* Deferred.await(begun)
    yield* TestClock.adjust("1 second")
    expect(Exit.isSuccess(yield* Fiber.await(closing))).toBe(true)
  })

  test.effect("is interrupted at the limit, and answers what it has done before", function* () {
    const interrupted = yield* Deferred.make<void>()
    const work = Effect.onInterrupt(Effect.never, () => Deferred.succeed(interrupted, undefined))
    const fiber = yield* Effect.fork(Effect.uninterruptible(Supervision.within("1 second", work)))
    yield* TestClock.adjust("1 second")
    expect(yield* Fiber.join(fiber)).toEqual(Option.none())
    yield* Deferred.await(interrupted)
    expect(yield* Supervision.within("1 second", Effect.succeed(1))).toEqual(Option.some(1))
    expect(yield* Effect.exit(Supervision.within("1 second", Effect.fail("no")))).toEqual(Exit.fail("no"))
  })
})
