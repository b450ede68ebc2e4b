/** Asynchronous operations on files that do not answer, as on a stalled disk: each thread that performs them waits. */
import { open } from "node:fs/promises"
import { Effect, type Scope } from "effect"
import * as Fifo from "./Fifo.ts"

/** The number of threads of libuv. */
const threads = Number(process.env.UV_THREADPOOL_SIZE ?? 4)

/** Operations that wait for the disk. */
export interface StalledFiles {
  /** Waits until this number of operations is queued. */
  readonly queued: (count: number) => Effect.Effect<unknown>
  /** Lets the disk answer, and waits until all operations have ended. */
  readonly answer: Effect.Effect<unknown>
}

/** Stalls the disk until `answer` is run, or until the scope closes. */
export const make: Effect.Effect<StalledFiles, never, Scope.Scope> = Effect.gen(function* () {
  yield* Fifo.until(() => Fifo.pending() === 0)
  const { answer, paths } = yield* Fifo.make(threads)
  const readers = paths.map(path => open(path))
  yield* Effect.addFinalizer(() =>
    Effect.zipRight(
      answer,
      Effect.promise(async () => {
        for (const reader of readers) await (await reader).close()
      })
    )
  )
  return { queued: count => Fifo.until(() => Fifo.pending() >= threads + count), answer }
})
