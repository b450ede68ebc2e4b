import { describe, expect } from "@effect/vitest"
import { Effect, Fiber, TestClock } from "effect"
import * as KeyedBreakers from "../../../src/Upstream/Resilience/KeyedBreakers.ts"
import { test } from "../../Tests.ts"

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
