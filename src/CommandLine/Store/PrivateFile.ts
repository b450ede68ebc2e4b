/** A file that only its user can read. */
import { Effect, type Scope } from "effect"
import { messageOf } from "../../ErrorMessage.ts"
import * as OpenFile from "../../Storage/OpenFile.ts"
import { type CommandFailed, failed } from "../CommandFailed.ts"

/** A file that is being written. */
export interface PrivateFile {
  readonly write: (data: string | Uint8Array) => Effect.Effect<void, CommandFailed>
  /** Waits until all that was written is on disk. */
  readonly sync: Effect.Effect<void, CommandFailed>
}

/** That a file cannot be written; `name` is that by which the user knows it. */
export const unwritable =
  (name: string) =>
  (error: unknown): CommandFailed =>
    failed(`${name} cannot be written: ${messageOf(error)}`)

/**
 * Opens a file until the scope closes: a new one, or one to which is added. What is not complete then is left to the one
 * who has chosen its name.
 */
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
