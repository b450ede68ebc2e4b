import { Context, Deferred, Effect, FiberId, Layer } from "effect"

/** Whether the service is shutting down: what would go on for ever (polls, streams, sockets) ends then. */
export class Draining extends Context.Tag("causeway/Draining")<
  Draining,
  {
    /** Tells everybody that the service shuts down; again is as good as once. */
    readonly begin: Effect.Effect<void>
    /** Waits until draining begins. */
    readonly begun: Effect.Effect<void>
    readonly hasBegun: () => boolean
  }
>() {}

/** One latch for the whole service. */
export const layer: Layer.Layer<Draining> = Layer.sync(Draining, () => {
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
