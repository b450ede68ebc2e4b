import { describe, expect, it } from "@effect/vitest"
import { Clock, Deferred, Effect, Exit, Fiber, Logger, Runtime, Scope, TestClock } from "effect"
import * as Direct from "../../src/base/Direct.ts"
import * as SingleFlight from "../../src/base/SingleFlight.ts"
import { breathe } from "../../src/Simulator/Testing/Time.ts"
import { test } from "../Tests.ts"

const isInterrupted = <A, E>(exit: Exit.Exit<A, E>): boolean => Exit.isFailure(exit) && Exit.isInterrupted(exit)

describe("SingleFlight", () => {
  test.scoped("callers share what is under way, each key has its own, and a later call computes again", function* () {
    const flight = new SingleFlight.SingleFlight<string, number, string>(yield* Effect.scope)
    const gate = yield* Deferred.make<void>()
    let runs = 0
    const work = Effect.suspend(() => Effect.as(Deferred.await(gate), ++runs))
    const fibers = yield* Effect.forEach(["a", "a", "b"], key => Effect.fork(flight.run(key, work)))
    yield* breathe
    expect([flight.isRunning("a"), flight.isRunning("c")]).toEqual([true, false])
    // The one who began it is interrupted.
    yield* Fiber.interrupt(fibers[0]!)
    yield* Deferred.succeed(gate, undefined)
    expect(yield* Effect.forEach(fibers.slice(1), Fiber.join)).toEqual([1, 2])
    expect(flight.isRunning("a")).toBe(false)
    expect(yield* flight.run("a", work)).toBe(3)
    expect(yield* Effect.flip(flight.run("a", Effect.fail("no")))).toBe("no")
    expect(yield* Effect.exit(flight.run("a", Effect.die("a bug")))).toEqual(Exit.die("a bug"))
    expect(yield* flight.run("a", work)).toBe(4)
  })

  test.scoped("a caller that is interrupted at any step leaves nothing behind", function* () {
    const flight = new SingleFlight.SingleFlight<string, number>(yield* Effect.scope)
    for (let step = 0; step < 96; step++) {
      const call = flight.run("a", Effect.succeed(step))
      const fiber = yield* Effect.fork(Effect.withMaxOpsBeforeYield(call, 10 + (step % 16)))
      for (let index = 0; index < step / 16; index++) yield* Effect.yieldNow()
      yield* Fiber.interrupt(fiber)
      yield* breathe
      expect(flight.isRunning("a")).toBe(false)
    }
  })

  test.effect("where the scope closes, or has closed, those who wait are interrupted", function* () {
    const scope = yield* Scope.make()
    const flight = new SingleFlight.SingleFlight<string, number>(scope)
    const shared = yield* Scope.extend(SingleFlight.sharedFor(1000, Effect.succeed(0), Effect.never), scope)
    const waiting = yield* Effect.forEach([flight.run("a", Effect.never), shared], Effect.fork)
    yield* breathe
    yield* Scope.close(scope, Exit.void)
    expect((yield* Effect.forEach(waiting, Fiber.await)).map(isInterrupted)).toEqual([true, true])
    expect(isInterrupted(yield* Effect.exit(flight.run("a", Effect.succeed(1))))).toBe(true)
    expect(flight.isRunning("a")).toBe(false)
  })

  test.scoped("a result is shared for some time from the beginning of its computation", function* () {
    let runs = 0
    const count = Effect.sync(() => ++runs)
    const shared = yield* SingleFlight.sharedFor(1000, Clock.currentTimeMillis, Effect.delay(count, "600 millis"))
    const first = yield* Effect.forEach([1, 2], () => Effect.fork(shared))
    yield* TestClock.adjust("600 millis")
    expect(yield* Effect.forEach(first, Fiber.join)).toEqual([1, 1])
    yield* TestClock.adjust("399 millis")
    expect(yield* shared).toBe(1)
    yield* TestClock.adjust("1 millis")
    const second = yield* Effect.fork(shared)
    yield* TestClock.adjust("600 millis")
    expect(yield* Fiber.join(second)).toBe(2)
  })

  test.effect("a shared computation whose scope closes before it has started ends", function* () {
    const scope = yield* Scope.make()
    const shared = yield* Scope.extend(SingleFlight.sharedFor(1000, Effect.succeed(0), Effect.never), scope)
    const waiting = yield* Effect.fork(Effect.exit(shared))
    // The caller has started it, but its fiber has not run yet.
    yield* Effect.yieldNow()
    yield* Scope.close(scope, Exit.void)
    expect(isInterrupted(yield* Fiber.join(waiting))).toBe(true)
  })
})

describe("DirectFlight", () => {
  /** Computations that end by hand, each with its number. */
  const setup = Effect.map(Effect.runtime<never>(), runtime => {
    const flight = new SingleFlight.DirectFlight<string, number, string>(runtime, "A caller failed on its result")
    const ends: Array<(exit: Exit.Exit<number, string>) => void> = []
    const work = () =>
      Direct.async<number, string>(resume => {
        ends.push(resume)
        return () => {}
      })
    const results: Array<readonly [caller: string, result: unknown]> = []
    const call = (caller: string, effect: Effect.Effect<number, string>) =>
      Direct.run(effect, Runtime.runFork(runtime), exit =>
        results.push([caller, Exit.isSuccess(exit) ? exit.value : "failed"])
      )
    return { call, ends, flight, results, work }
  })

  test.effect("callers join what is under way, or share the next one, which begins when that has ended", function* () {
    const { call, ends, flight, results, work } = yield* setup
    call("a", flight.next("key", work))
    call("b", flight.join("key", work))
    call("c", flight.next("key", work))
    call("d", flight.next("key", work))
    call("other", flight.join("other", work))
    expect(ends).toHaveLength(2)
    ends[0]!(Exit.succeed(1))
    expect(results).toEqual([
      ["a", 1],
      ["b", 1]
    ])
    expect(ends).toHaveLength(3)
    call("e", flight.join("key", work))
    ends[2]!(Exit.fail("no"))
    expect(results.slice(2)).toEqual([
      ["c", "failed"],
      ["d", "failed"],
      ["e", "failed"]
    ])
    expect([flight.isRunning("key"), flight.isRunning("other")]).toEqual([false, true])
  })

  test.effect("each caller knows whether the answer of its own computation is arriving", function* () {
    const { call, ends, flight, work } = yield* setup
    const arriving = new Set<number>()
    const reporting: SingleFlight.Work<number, string> = onSent => {
      const run = ends.length
      onSent(() => arriving.has(run))
      return work()
    }
    const callers: Array<() => boolean> = []
    const joined = (isArriving: () => boolean) => void callers.push(isArriving)
    const answers = () => callers.map(isArriving => isArriving())
    call("a", flight.next("key", reporting, joined))
    call("b", flight.next("key", reporting, joined))
    expect(answers()).toEqual([false, false])
    arriving.add(0)
    expect(answers()).toEqual([true, false])
    ends[0]!(Exit.succeed(1))
    arriving.delete(0)
    expect(answers()).toEqual([false, false])
    arriving.add(1)
    expect(answers()).toEqual([false, true])
    ends[1]!(Exit.succeed(2))
  })

  test.effect(
    "a caller that leaves is not notified, and the next computation does not start without callers",
    function* () {
      const { call, ends, flight, results, work } = yield* setup
      call("a", flight.join("key", work))
      const leave = call("b", flight.join("key", work))
      const leaveNext = call("c", flight.next("key", work))
      leave()
      leaveNext()
      results.length = 0
      ends[0]!(Exit.succeed(1))
      expect(results).toEqual([["a", 1]])
      expect(ends).toHaveLength(1)
      expect(flight.isRunning("key")).toBe(false)
    }
  )

  it.effect("a caller that throws on its result keeps no other from its own, and is logged", () => {
    const logged: Array<unknown> = []
    const logger = Logger.make(({ message }) => logged.push(message))
    return Effect.gen(function* () {
      const { call, ends, flight, results, work } = yield* setup
      Direct.run(flight.join("key", work), Effect.runFork, () => {
        throw new Error("a bug")
      })
      call("b", flight.join("key", work))
      ends[0]!(Exit.succeed(1))
      expect(results).toEqual([["b", 1]])
      yield* breathe
      expect(logged).toEqual([["A caller failed on its result"]])
    }).pipe(Effect.provide(Logger.replace(Logger.defaultLogger, logger)))
  })
})
