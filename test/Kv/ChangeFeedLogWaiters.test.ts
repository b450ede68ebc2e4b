import { expect, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import * as DrainingSignal from "../../src/Http/DrainingSignal.ts"
import * as LogWaiters from "../../src/Kv/ChangeFeed/LogWaiters.ts"
import { ChangeLog } from "../../src/Kv/ChangeLog.ts"

/** A log that grew to this seq, and grows no more. */
const grown = (lastSeq: number) =>
  Layer.succeed(ChangeLog, {
    read: () => Effect.never,
    history: Effect.succeed(0),
    lastSeq: Effect.succeed(lastSeq),
    awaitPast: seq => (seq < lastSeq ? Effect.void : Effect.never),
    trim: () => Effect.succeed(0),
    expire: Effect.succeed(0)
  })

it.scoped("a waiter during another's read is woken too", () =>
  Effect.gen(function* () {
    let end = 0
    const waiters = yield* LogWaiters.make({
      fresh: () => Effect.never,
      next: () => Effect.never,
      end: () => end
    })
    yield* Effect.yieldNow()
    const waiting = Effect.runFork(waiters.wait(0, Number.POSITIVE_INFINITY))
    end = 1
    expect(yield* Fiber.join(waiting)).toBe("grown")
  }).pipe(Effect.provide(Layer.merge(grown(1), DrainingSignal.layer)))
)
