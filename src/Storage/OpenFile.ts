/** Files that are open for as long as a scope. */
import { type FileHandle, open as openFile } from "node:fs/promises"
import { Effect, type Scope } from "effect"
import { constVoid } from "effect/Function"

/**
 * Opens a file until the scope closes. Fails with the system's error. A stalled disk delays neither an interruption nor
 * the end of the scope: the file is closed in the background. Flags that create the file may therefore create it after
 * the end of the scope.
 */
export const open = (path: string, flags: string | number = "r"): Effect.Effect<FileHandle, unknown, Scope.Scope> =>
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
