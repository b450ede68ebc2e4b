/** The signal that the service is shutting down. */
import { Context, Deferred, Effect, FiberId, Layer } from "effect"

/**
 * Whether the service is shutting down. It ends requests that would not end by themselves: polls, streams, WebSockets.
 */
export class DrainingSignal extends Context.Tag("causeway/DrainingSignal")<
  DrainingSignal,
  {
    /** Starts draining; idempotent. */
    readonly begin: Effect.Effect<void>
    /** Waits until draining starts. */
    readonly started: Effect.Effect<void>
    readonly hasStarted: () => boolean
  }
>() {}

/** One signal for all layers that depend on it. */
export const layer: Layer.Layer<DrainingSignal> = Layer.sync(DrainingSignal, () => {
  const latch = Deferred.unsafeMake<void>(FiberId.none)
  let isStarted = false
  return {
    begin: Effect.suspend(() => {
      isStarted = true
      return Effect.asVoid(Deferred.succeed(latch, undefined))
    }),
    started: Deferred.await(latch),
    hasStarted: () => isStarted
  }
})
