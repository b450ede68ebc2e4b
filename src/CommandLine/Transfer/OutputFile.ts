/** Files that commands write, which only their owner can read. */
import { constants, lstatSync, realpathSync, renameSync, rmSync } from "node:fs"
import { type FileHandle, open as openFile } from "node:fs/promises"
import { dirname } from "node:path"
import { Effect, type Scope } from "effect"
import { constVoid } from "effect/Function"
import { messageOf } from "../../base/ErrorMessage.ts"
import { randomHex } from "../../base/RandomHex.ts"
import { claimName, flushDirectory, hasCode, makeFile } from "../../Storage/FileSystem.ts"
import { type CommandFailed, failed, wrong } from "../CommandFailed.ts"

/** A file that is being written. */
export interface OutputFile {
  readonly write: (data: string | Uint8Array) => Effect.Effect<void, CommandFailed>
  /** Flushes all writes to disk. */
  readonly sync: Effect.Effect<void, CommandFailed>
}

/** Creates an empty file, unless it exists. Throws the system's error. */
export const create = (path: string): void => makeFile(path, 0o600)

/**
 * Opens a file until the scope closes. Fails with the system's error. A stalled disk delays neither an interruption nor
 * the end of the scope: the file is closed in the background. Flags that create the file may therefore create it after
 * the end of the scope.
 */
export const openHandle = (path: string, flags: string | number): Effect.Effect<FileHandle, unknown, Scope.Scope> =>
  Effect.flatMap(
    Effect.acquireRelease(
      Effect.sync(() => {
        const opening = openFile(path, flags)
        // A failure reaches the caller below, unless it was interrupted.
        opening.catch(constVoid)
        return opening
      }),
      opening =>
        Effect.sync(() => {
          opening.then(handle => handle.close()).catch(constVoid)
        })
    ),
    opening => Effect.tryPromise({ try: () => opening, catch: error => error })
  )

/**
 * Opens a file that {@link create} has made, to append to, until the scope closes. The caller removes an incomplete
 * file. On a stalled disk the file may be opened after that, and even after the end of the process: an operation that
 * could create it would leave a file that is never removed.
 */
export const open = (
  path: string,
  failure: (error: unknown) => CommandFailed
): Effect.Effect<OutputFile, CommandFailed, Scope.Scope> => {
  const attempt = (work: () => Promise<void>) => Effect.tryPromise({ try: work, catch: failure })
  return openHandle(path, constants.O_WRONLY | constants.O_APPEND).pipe(
    Effect.mapError(failure),
    Effect.map(handle => ({
      write: data => attempt(() => handle.writeFile(data)),
      sync: attempt(() => handle.sync())
    }))
  )
}

export interface Draft extends Pick<OutputFile, "write"> {
  /** Flushes the file to disk and gives it its name. */
  readonly complete: Effect.Effect<void, CommandFailed>
}

const find = (path: string) => lstatSync(path, { throwIfNoEntry: false })

/** The file to which a path leads through symbolic links; the path itself if it does not exist. */
const target = (path: string): string => {
  if (find(path) === undefined) return path
  const real = realpathSync(path)
  if (!lstatSync(real).isFile()) throw new Error("it is not a file")
  return real
}

/** Gives the complete file its name. */
const publish = (draft: string, final: string, mayReplace: boolean): void => {
  if (mayReplace) renameSync(draft, final)
  else claimName(draft, final)
  try {
    flushDirectory(dirname(final))
  } catch (error) {
    // Some file systems do not synchronize directories.
    if (!hasCode(error, "EINVAL", "ENOTSUP", "EPERM")) throw error
  }
}

/**
 * Starts a file under a temporary name next to it. When the scope closes, an incomplete file is removed.
 * Fails if the file exists and may not be replaced.
 */
export const draft = (path: string, mayReplace: boolean): Effect.Effect<Draft, CommandFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const alreadyExists = wrong(`${path} exists already`, "--force replaces it.")
    const failure = (error: unknown): CommandFailed =>
      !mayReplace && hasCode(error, "EEXIST") ? alreadyExists : failed(`${path} cannot be written: ${messageOf(error)}`)
    const attempt = <A>(work: () => A) => Effect.try({ try: work, catch: failure })
    const final = yield* attempt(() => (mayReplace ? target(path) : path))
    if (!mayReplace && (yield* attempt(() => find(path) !== undefined))) return yield* alreadyExists
    const temporary = `${final}.${yield* randomHex(2)}.part`
    yield* Effect.acquireRelease(
      attempt(() => create(temporary)),
      () => Effect.ignore(Effect.try(() => rmSync(temporary, { force: true })))
    )
    const file = yield* open(temporary, failure)
    return {
      write: file.write,
      complete: Effect.zipRight(
        file.sync,
        attempt(() => publish(temporary, final, mayReplace))
      )
    }
  })
