/**
 * Files on a disk that does not answer: opening a FIFO waits for its other end. An asynchronous `open` occupies a thread
 * of libuv until then. Synchronous operations on other files are not affected.
 */
import { execFileSync } from "node:child_process"
import { closeSync, constants, openSync } from "node:fs"
import { join } from "node:path"
import { Effect, type Scope } from "effect"
import { temporaryDirectory } from "../TemporaryDirectory.ts"

/** The number of operations on files that have not ended. */
export const pending = (): number => process.getActiveResourcesInfo().filter(name => name === "FSReqPromise").length

/** Checks a condition until it is met. */
export const until = (isReached: () => boolean) => Effect.repeat(Effect.sleep("1 millis"), { until: () => isReached() })

/** FIFOs that nothing has opened. */
export interface Fifos {
  readonly paths: ReadonlyArray<string>
  /** Lets each `open` of a FIFO return, and waits until no operation on a file is pending. */
  readonly answer: Effect.Effect<void>
}

/** Makes FIFOs. They answer when the scope closes. */
export const make = (count: number): Effect.Effect<Fifos, never, Scope.Scope> =>
  Effect.gen(function* () {
    const directory = yield* temporaryDirectory
    const paths = Array.from({ length: count }, (_, index) => join(directory, `fifo-${index}`))
    execFileSync("mkfifo", paths)
    const answer = yield* Effect.cached(
      Effect.acquireUseRelease(
        // Open until all operations have ended: a thread may call `open` only after this.
        Effect.sync(() => paths.map(path => openSync(path, constants.O_RDWR | constants.O_NONBLOCK))),
        () => until(() => pending() === 0),
        descriptors => Effect.sync(() => descriptors.forEach(descriptor => void closeSync(descriptor)))
      )
    )
    yield* Effect.addFinalizer(() => answer)
    return { paths, answer: Effect.asVoid(answer) }
  })
