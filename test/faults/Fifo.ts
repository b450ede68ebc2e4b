/**
 * Files on a disk that does not answer: opening a FIFO waits for its other end. An asynchronous `open` occupies a thread
 * of libuv until then. Synchronous operations on other files are not affected.
 */
import { execFileSync } from "node:child_process"
import { closeSync, constants, openSync, readdirSync, readFileSync, readlinkSync } from "node:fs"
import { join } from "node:path"
import { Effect, type Scope } from "effect"
import { temporaryDirectory } from "../TemporaryDirectory.ts"

/** The number of operations on files that have not ended. */
export const pending = (): number => process.getActiveResourcesInfo().filter(name => name === "FSReqPromise").length

/** Checks a condition until it is met. */
export const until = (isReached: () => boolean) => Effect.repeat(Effect.sleep("1 millis"), { until: () => isReached() })

/** A file of `/proc`, which may end with what it describes. */
const attempt = <A>(read: () => A): A | undefined => {
  try {
    return read()
  } catch {
    return undefined
  }
}

/** Whether a thread of a process is in a system call on a file. */
const isIn = (pid: number, path: string): boolean => {
  const isPath = (name: string): boolean => attempt(() => readlinkSync(`/proc/${pid}/fd/${name}`)) === path
  const descriptor = readdirSync(`/proc/${pid}/fd`).find(isPath)
  if (descriptor === undefined) return false
  const argument = `0x${Number(descriptor).toString(16)}`
  return readdirSync(`/proc/${pid}/task`).some(
    thread => attempt(() => readFileSync(`/proc/${pid}/task/${thread}/syscall`, "utf8"))?.split(" ")[1] === argument
  )
}

/** Opens a FIFO that a process is about to read, and waits until it reads. Nothing is written until the scope closes. */
export const isRead = (pid: number, path: string): Effect.Effect<void, never, Scope.Scope> =>
  Effect.gen(function* () {
    let writer: number | undefined
    const open = (): boolean => {
      try {
        writer = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK)
      } catch (error) {
        // No process has opened it for reading.
        if ((error as NodeJS.ErrnoException).code !== "ENXIO") throw error
      }
      return writer !== undefined
    }
    yield* Effect.acquireRelease(until(open), () => Effect.sync(() => void (writer !== undefined && closeSync(writer))))
    yield* until(() => isIn(pid, path))
  })

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
