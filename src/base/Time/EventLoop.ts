/** Turns of the event loop, and events of emitters. */
import type { EventEmitter } from "node:events"
import type { Writable } from "node:stream"
import { Effect } from "effect"

/** Continues in the next iteration of the event loop, so that sockets are read and written in between. */
export const yieldToEventLoop: Effect.Effect<void> = Effect.async(resume => {
  const handle = setImmediate(() => resume(Effect.void))
  return Effect.sync(() => clearImmediate(handle))
})

/**
 * Calls back once everything that has already arrived is read: after a pause of the process, timers run before reads.
 * Returns a function that cancels that. The first of the two turns may begin after the phase that reads sockets.
 */
export const onceRead = (callback: () => void): (() => void) => {
  let handle = setImmediate(() => {
    handle = setImmediate(callback)
  })
  return () => clearImmediate(handle)
}

/** Waits until everything that has already arrived is read; see {@link onceRead}. */
export const untilRead: Effect.Effect<void> = Effect.async(resume => Effect.sync(onceRead(() => resume(Effect.void))))

/**
 * Waits until an emitter emits one of these events, unless what they announce `isSo` already. A fiber may yield between a
 * check and the wait, so that the wait checks as well.
 */
export const emitted = (
  emitter: EventEmitter,
  isSo: () => boolean,
  ...events: ReadonlyArray<string>
): Effect.Effect<void> =>
  Effect.async(resume => {
    if (isSo()) return resume(Effect.void)
    const stop = (): void => {
      for (const event of events) emitter.off(event, done)
    }
    const done = (): void => {
      stop()
      resume(Effect.void)
    }
    for (const event of events) emitter.on(event, done)
    return Effect.sync(stop)
  })

/** Waits until a stream accepts more data, or is destroyed. */
export const drained = (stream: Writable): Effect.Effect<void> =>
  emitted(stream, () => stream.destroyed || !stream.writableNeedDrain, "drain", "close")
