/** A file that only its owner can read. */
import { constants } from "node:fs"
import { Effect, type Scope } from "effect"
import { messageOf } from "../../ErrorMessage.ts"
import { makeFile } from "../../Storage/FileSystem.ts"
import * as OpenFile from "../../Storage/OpenFile.ts"
import { type CommandFailed, failed } from "../CommandFailed.ts"

/** A file that is being written. */
export interface PrivateFile {
  readonly write: (data: string | Uint8Array) => Effect.Effect<void, CommandFailed>
  /** Flushes all writes to disk. */
  readonly sync: Effect.Effect<void, CommandFailed>
}

/** The failure to write a file. `name` is its name for the user. */
export const unwritable =
  (name: string) =>
  (error: unknown): CommandFailed =>
    failed(`${name} cannot be written: ${messageOf(error)}`)

/** Creates an empty file, unless it exists. Throws the system's error. */
export const create = (path: string): void => makeFile(path, 0o600)

/**
 * Opens a file that {@link create} has made, to append to, until the scope closes. The caller removes an incomplete
 * file. On a stalled disk the file may be opened after that, and even after the end of the process: an operation that
 * could create it would leave a file that is never removed.
 */
export const open = (
  path: string,
  failure: (error: unknown) => CommandFailed
): Effect.Effect<PrivateFile, CommandFailed, Scope.Scope> => {
  const attempt = (work: () => Promise<void>) => Effect.tryPromise({ try: work, catch: failure })
  return OpenFile.open(path, constants.O_WRONLY | constants.O_APPEND).pipe(
    Effect.mapError(failure),
    Effect.map(handle => ({
      write: data => attempt(() => handle.writeFile(data)),
      sync: attempt(() => handle.sync())
    }))
  )
}
