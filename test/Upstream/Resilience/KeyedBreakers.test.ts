import { describe, expect, it } from "@effect/vitest"
import { Effect, TestClock } from "effect"
import * as KeyedBreakers from "../../../src/Upstream/Resilience/KeyedBreakers.ts"

describe("breakers by key", () => {
  const fail = (breakers: KeyedBreakers.KeyedBreakers, id: string) =>
    Effect.either(breakers.of(id).protect(Effect.fail("broken"), () => "failure"))

  it.effect("are remembered for keys that fail alone, and no more than so many", () =>
    Effect.gen(function* () {
      const breakers = KeyedBreakers.make({ upstream: "keyed", label: "key", most: 3 })
      for (const id of ["a", "b", "c", "d", "e"]) yield* Effect.replicateEffect(fail(breakers, id), 5)
      expect(breakers.size()).toBe(3)
      expect(yield* breakers.of("a").state).toBe("closed")
      expect(yield* breakers.of("e").state).toBe("open")
      yield* TestClock.adjust("10 seconds")
      yield* breakers.of("e").protect(Effect.void, () => "success")
      yield* breakers.of("f").protect(Effect.void, () => "success")
      expect(breakers.size()).toBe(2)
    })
  )
})
