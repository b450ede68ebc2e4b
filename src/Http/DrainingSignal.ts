import { Context, Deferred, Effect, FiberId, Layer } from "effect"

/** Whether the service is shutting down, which ends what has no end of its own: polls, streams and WebSockets. */
export class DrainingSignal extends Context.Tag("causeway/DrainingSignal")<
  DrainingSignal,
  {
    /** Begins to drain; idempotent. */
    readonly begin: Effect.Effect<void>
    /** Waits until draining begins. */
    readonly begun: Effect.Effect<void>
    readonly hasBegun: () => boolean
  }
>() {}

/** One signal for all who depend on it. */
export const layer: Layer.Layer<DrainingSignal> = Layer.sync(DrainingSignal, () => {
  const latch = Deferred.unsafeMake<void>(FiberId.none)
  let begun = false
  return {
    begin: Effect.suspend(() => {
      begun = true
      return Effect.asVoid(Deferred.succeed(latch, undefined))
    }),
    begun: Deferred.await(latch),
    hasBegun: () => begun
  }
})
