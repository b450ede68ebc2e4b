import { expect, vi } from "@effect/vitest"
import { Effect, Random } from "effect"
import { randomHex } from "../../src/base/RandomHex.ts"
import { test } from "../Tests.ts"

test.effect("digits come from the system, where a program does not provide a generator", function* () {
  const words = vi.spyOn(crypto, "getRandomValues")
  expect(yield* randomHex(4)).toMatch(/^[0-9a-f]{32}$/)
  // Effect's own generator has a seed of 32 bits, which two processes may share.
  expect(words).toHaveBeenCalledTimes(1)
  words.mockRestore()
})

test.effect("a program's own generator decides them, so that tests can repeat what they found", function* () {
  const seeded = Effect.suspend(() => Effect.withRandom(Effect.all([randomHex(4), randomHex(1)]), Random.make("seed")))
  expect(yield* seeded).toEqual(yield* seeded)
})

test.effect("a thousand ids are different, and all digits occur", function* () {
  const ids = yield* Effect.all(Array.from({ length: 1000 }, () => randomHex(2)))
  expect(new Set(ids).size).toBe(1000)
  expect(new Set(ids.map(id => id[0])).size).toBe(16)
})
