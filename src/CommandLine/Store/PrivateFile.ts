/** A file that only its owner can read. */
import { Effect, type Scope } from "effect"
import { messageOf } from "../../ErrorMessage.ts"
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

/** Opens a new file, or one to append to, until the scope closes. The caller removes an incomplete file. */
export const open = (
  path: string,
  form: "new" | "appended",
  failure: (error: unknown) => CommandFailed
): Effect.Effect<PrivateFile, CommandFailed, Scope.Scope> => {
  const attempt = (work: () => Promise<void>) => Effect.tryPromise({ try: work, catch: failure })
  return OpenFile.open(path, form === "new" ? "wx" : "a", 0o600).pipe(
    Effect.mapError(failure),
    Effect.map(handle => ({
      write: data => attempt(() => handle.writeFile(data)),
      sync: attempt(() => handle.sync())
    }))
  )
}
