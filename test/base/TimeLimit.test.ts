import { describe, expect } from "@effect/vitest"
import { Effect, Exit, Runtime, Scope, TestClock } from "effect"
import * as Direct from "../../src/base/Direct.ts"
import * as TimeLimit from "../../src/base/TimeLimit.ts"
import { breathe } from "../../src/Simulator/Testing/Time.ts"
import { test } from "../Tests.ts"

/** Limited work that ends by hand, and the exits of its callers with the time of each, in milliseconds. */
const setup = Effect.gen(function* () {
  const runtime = yield* Effect.runtime<never>()
  const clock = yield* Effect.clock
  const limited = yield* TimeLimit.make(runtime, { name: "limit", millis: 1900, onTimeout: () => "timeout" })
  const ends: Array<(exit: Exit.Exit<number, string>) => void> = []
  const canceled: Array<number> = []
  const exits: Array<readonly [caller: string, millis: number, result: number | string]> = []
  const call = (caller: string, isArriving?: () => boolean) =>
    Direct.run(
      limited(
        Direct.async<number, string>(resume => {
          const index = ends.push(resume) - 1
          return () => canceled.push(index)
        }),
        isArriving
      ),
      Runtime.runFork(runtime),
      exit =>
        exits.push([
          caller,
          clock.unsafeCurrentTimeMillis(),
          Exit.match(exit, { onSuccess: value => value, onFailure: ({ _tag }) => _tag })
        ])
    )
  return { call, canceled, ends, exits, limited }
})

describe("TimeLimit", () => {
  test.scoped("each work that is not over in time fails then, whenever others began, and is interrupted", function* () {
    const { call, canceled, ends, exits } = yield* setup
    call("a")
    yield* TestClock.adjust("1 second")
    call("b")
    call("c")
    yield* TestClock.adjust("899 millis")
    expect(exits).toEqual([])
    yield* TestClock.adjust("1 millis")
    expect(exits).toEqual([["a", 1900, "Fail"]])
    ends[1]!(Exit.succeed(1))
    yield* TestClock.adjust("1 minute")
    call("d")
    yield* TestClock.adjust("1 minute")
    expect(exits.slice(1)).toEqual([
      ["b", 1900, 1],
      ["c", 2900, "Fail"],
      ["d", 63_800, "Fail"]
    ])
    expect(canceled).toEqual([0, 2, 3])
    // A late answer is dropped.
    ends[0]!(Exit.succeed(2))
    expect(exits).toHaveLength(4)
  })

  test.scoped("an answer that is arriving at the limit has no limit", function* () {
    const { call, ends, exits } = yield* setup
    call("long", () => true)
    call("silent", () => false)
    yield* TestClock.adjust("10 seconds")
    expect(exits).toEqual([["silent", 1900, "Fail"]])
    ends[0]!(Exit.succeed(1))
    expect(exits.slice(1)).toEqual([["long", 10_000, 1]])
  })

  test.scoped("a caller that leaves interrupts its work and gets no timeout", function* () {
    const { call, canceled, exits } = yield* setup
    const leave = call("a")
    call("b")
    leave()
    expect(canceled).toEqual([0])
    exits.length = 0
    yield* TestClock.adjust("1 minute")
    expect(exits).toEqual([["b", 1900, "Fail"]])
  })

  test.scoped("work that ends at once stays an exit, and work of a fiber is limited too", function* () {
    const { limited } = yield* setup
    const exits: Array<unknown> = []
    Direct.run(limited(Direct.sync(() => 1)), Effect.runFork, exit => exits.push(exit))
    expect(exits).toEqual([Exit.succeed(1)])
    expect(yield* limited(Effect.as(Effect.yieldNow(), 2))).toBe(2)
    const waiting = yield* Effect.fork(Effect.flip(limited(Effect.never)))
    yield* TestClock.adjust("1900 millis")
    expect(yield* waiting).toBe("timeout")
  })

  test.effect("work has no limit after the scope has closed", function* () {
    const scope = yield* Scope.make()
    const { call, exits } = yield* Scope.extend(setup, scope)
    call("a")
    yield* breathe
    yield* Scope.close(scope, Exit.void)
    yield* TestClock.adjust("1 minute")
    expect(exits).toEqual([])
  })
})
