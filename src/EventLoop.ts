import { Effect } from "effect"

/** Continues in the next iteration of the event loop, so that sockets are read and written in between. */
export const yieldToEventLoop: Effect.Effect<void> = Effect.async(resume => {
  const handle = setImmediate(() => resume(Effect.void))
  return Effect.sync(() => clearImmediate(handle))
})
