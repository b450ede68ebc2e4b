import type { Writable } from "node:stream"
import { Effect } from "effect"

/** Continues in the next iteration of the event loop, so that sockets are read and written in between. */
export const yieldToEventLoop: Effect.Effect<void> = Effect.async(resume => {
  const handle = setImmediate(() => resume(Effect.void))
  return Effect.sync(() => clearImmediate(handle))
})

/** Waits until a stream takes more, or is gone. */
export const drained = (stream: Writable): Effect.Effect<void> =>
  Effect.async(resume => {
    const stop = (): void => {
      stream.off("drain", done)
      stream.off("close", done)
    }
    const done = (): void => {
      stop()
      resume(Effect.void)
    }
    stream.on("drain", done)
    stream.on("close", done)
    return Effect.sync(stop)
  })
