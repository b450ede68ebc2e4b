import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, TestClock } from "effect"
import * as Load from "../../src/Process/Load.ts"

describe("Load", () => {
  it.effect("lasts from the second busy second in a row", () =>
    Effect.gen(function* () {
      const seconds = [0.9, 0.1, 1, 0.49, 0.5, 0.7]
      let asked = 0
      const fiber = yield* Effect.fork(Load.lasting(() => seconds[asked++]!))
      yield* TestClock.adjust("5 seconds")
      assert.isNull(fiber.unsafePoll())
      yield* TestClock.adjust("1 second")
      yield* Fiber.join(fiber)
      assert.strictEqual(asked, seconds.length)
    })
  )
})
