/**
 * A file of a store that is not in a backup with a manifest. Such a file may be in use, or lack what is in a log beside it.
 */
import { existsSync, statSync } from "node:fs"
import { basename, dirname } from "node:path"
import { Effect, type Scope } from "effect"
import { isLocked } from "../Sqlite/Database/DatabaseError.ts"
import { Lock, realFile } from "../Sqlite/Database/Files.ts"
import { attempt, type BackupFailed, refuse } from "./BackupFailed.ts"
import { store } from "./Manifest.ts"

const hintFor = (file: string): string =>
  basename(file) === store.file
    ? `Make a backup with causeway backup --data-dir ${dirname(file)}, and give that.`
    : `Make a copy with .backup of sqlite3, and give that.`

/** Refuses a file that lacks changes which are in a log beside it. */
export const requireClosed = (file: string, hint = hintFor(file)): Effect.Effect<void, BackupFailed> =>
  Effect.flatMap(
    attempt(`${file} cannot be read`, () => {
      const real = realFile(file)
      return ["-wal", "-journal"]
        .map(end => `${real}${end}`)
        .find(log => (statSync(log, { throwIfNoEntry: false })?.size ?? 0) > 0)
    }),
    log =>
      log === undefined
        ? Effect.void
        : refuse(`${file} is not closed: ${basename(log)} has changes that it lacks`, hint)
  )

/** Takes the lock beside a file where there is one; `"InUse"` where somebody else has it. */
const lock = (file: string): Lock | "InUse" | undefined => {
  const path = `${realFile(file).replace(/\.db$/, "")}.lock`
  if (!existsSync(path)) return undefined
  try {
    return new Lock(path)
  } catch (error) {
    // Where it cannot be written, no service can have the store open.
    return isLocked(error) ? "InUse" : undefined
  }
}

/** Keeps services from opening a file until the scope closes. Refuses one that is open, or was not closed. */
export const hold = (file: string): Effect.Effect<void, BackupFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const held = yield* Effect.acquireRelease(
      attempt(`${file} cannot be read`, () => lock(file)),
      held => Effect.sync(() => held instanceof Lock && held.close())
    )
    if (held === "InUse") return yield* refuse(`${file} is in use by a service`, hintFor(file))
    yield* requireClosed(file)
  })
