/**
 * Asynchronous operations on files that do not answer, as on a stalled disk: each thread that performs them waits for a
 * FIFO. Synchronous operations are not affected.
 */
import { execFileSync } from "node:child_process"
import { closeSync, constants, openSync } from "node:fs"
import { open } from "node:fs/promises"
import { join } from "node:path"
import { Effect, type Scope } from "effect"
import { temporaryDirectory } from "../TemporaryDirectory.ts"

/** The number of threads of libuv. */
const threads = Number(process.env.UV_THREADPOOL_SIZE ?? 4)

const pending = (): number => process.getActiveResourcesInfo().filter(name => name === "FSReqPromise").length

const until = (isReached: () => boolean) => Effect.repeat(Effect.sleep("1 millis"), { until: () => isReached() })

/** Operations that wait for the disk. */
export interface StalledFiles {
  /** Waits until this number of operations is queued. */
  readonly queued: (count: number) => Effect.Effect<unknown>
  /** Lets the disk answer, and waits until all operations have ended. */
  readonly answer: Effect.Effect<unknown>
}

/** Stalls the disk until `answer` is run, or until the scope closes. */
export const make: Effect.Effect<StalledFiles, never, Scope.Scope> = Effect.gen(function* () {
  const directory = yield* temporaryDirectory
  const fifos = Array.from({ length: threads }, (_, index) => join(directory, `fifo-${index}`))
  execFileSync("mkfifo", fifos)
  yield* until(() => pending() === 0)
  const readers = fifos.map(fifo => open(fifo))
  // A reader's pending `open` returns once there is a writer.
  const release = yield* Effect.cached(
    Effect.promise(async () => {
      for (const fifo of fifos) closeSync(openSync(fifo, constants.O_RDWR | constants.O_NONBLOCK))
      for (const reader of readers) await (await reader).close()
    })
  )
  yield* Effect.addFinalizer(() => release)
  return {
    queued: count => until(() => pending() >= threads + count),
    answer: Effect.zipRight(
      release,
      until(() => pending() === 0)
    )
  }
})
