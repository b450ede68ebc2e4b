import { describe, expect, it } from "@effect/vitest"
import { Effect, Exit, Fiber } from "effect"
import { Signal } from "../../src/base/Inbox.ts"
import { test } from "../Tests.ts"
import * as Interleaving from "../Upstream/Interleaving.ts"

describe("Signal", () => {
  test.effect("lets its consumer continue once it is set, also before the wait, until it is cleared", function* () {
    const signal = new Signal()
    signal.set()
    yield* signal.wait
    yield* signal.wait
    signal.clear()
    const waiting = yield* Effect.fork(signal.wait)
    yield* Effect.yieldNow()
    expect(waiting.unsafePoll()).toBe(null)
    signal.set()
    yield* Fiber.join(waiting)
  })

  test.effect("is not lost with a consumer that was interrupted", function* () {
    const signal = new Signal()
    const waiting = yield* Effect.fork(signal.wait)
    yield* Effect.yieldNow()
    signal.set()
    yield* Fiber.interrupt(waiting)
    yield* signal.wait
  })

  it("wakes a consumer wherever it yields before it waits", async () => {
    for (const interleaving of Interleaving.allInterleavings) {
      const program = Effect.gen(function* () {
        const signal = new Signal()
        let rounds = 0
        const consumer = Effect.gen(function* () {
          while (rounds < 2) {
            yield* signal.wait
            signal.clear()
            rounds++
            for (let step = 0; step < 25; step++) yield* Effect.void
          }
        })
        const consuming = yield* Effect.fork(consumer)
        signal.set()
        while (rounds < 1) yield* Effect.yieldNow()
        signal.set()
        return yield* Fiber.join(consuming)
      })
      expect(await Interleaving.endOf(program, interleaving)).toEqual(Exit.void)
    }
  })
})
