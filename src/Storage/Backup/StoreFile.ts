/** A single file of a store, without a manifest. The file may be in use, or lack changes that are in its log. */
import { existsSync, statSync } from "node:fs"
import { basename, dirname } from "node:path"
import { SqliteError } from "better-sqlite3"
import { Effect, type Scope } from "effect"
import { describe, isLocked } from "../Sqlite/Database/DatabaseError.ts"
import { Lock, realFile } from "../Sqlite/Database/Files.ts"
import { isUnfinished } from "../Sqlite/Database/Opening/Restored.ts"
import { attempt, BackupFailed, refuse, store } from "./Manifest.ts"

const hintFor = (file: string): string =>
  basename(file) === store.file
    ? `Make a backup with causeway backup --data-dir ${dirname(file)}, and use that.`
    : `Make a copy with .backup of sqlite3, and use that.`

/** Refuses a file if its log has changes that the file lacks. */
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

/** Takes a lock; returns `"InUse"` if another process has it. */
const take = (path: string): Lock | "InUse" | undefined => {
  try {
    return new Lock(path, "shared")
  } catch (error) {
    if (isLocked(error)) return "InUse"
    // A file of another program with this name.
    if (error instanceof SqliteError && error.code === "SQLITE_NOTADB") return undefined
    throw error
  }
}

const lock = (file: string): Effect.Effect<void, BackupFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const path = yield* attempt(`${file} cannot be read`, () => `${realFile(file).replace(/\.db$/, "")}.lock`)
    if (!existsSync(path)) return
    const held = yield* Effect.acquireRelease(
      Effect.try({
        try: () => take(path),
        catch: error =>
          new BackupFailed({
            message: `${path} cannot be locked (${describe(error)}), and a service may have ${file} open`,
            hint: `Run the command as the user of the service, or as root. ${hintFor(file)}`
          })
      }),
      held => Effect.sync(() => held instanceof Lock && held.close())
    )
    if (held === "InUse") return yield* refuse(`${file} is in use by a service`, hintFor(file))
  })

const stateOf = (file: string) =>
  attempt(`${file} cannot be read`, () => {
    const { dev, ino, mtimeNs, size } = statSync(file, { bigint: true })
    return `${dev}:${ino}:${mtimeNs}:${size}`
  })

/** A file that no service opens until the scope closes. */
export interface Held {
  /** Refuses a file that was written in the meantime, by a program that ignores the lock. */
  readonly requireUnchanged: Effect.Effect<void, BackupFailed>
}

/** Prevents services from opening a file until the scope closes. Refuses a file that is open or was not closed. */
export const hold = (file: string): Effect.Effect<Held, BackupFailed, Scope.Scope> =>
  Effect.gen(function* () {
    yield* lock(file)
    const { directory, names } = yield* attempt(`${file} cannot be read`, () => ({
      directory: dirname(realFile(file)),
      names: statSync(file).nlink
    }))
    if (names > 1) {
      return yield* refuse(
        `${file} has several names (hard links), and its log may belong to another of them`,
        "Make a copy of it with .backup of sqlite3 by the name that is in use, and use that."
      )
    }
    if (isUnfinished(directory)) {
      return yield* refuse(
        `${directory} has a restore that was not finished`,
        "Start its service once: it finishes the restore. The old files are in before-restore-… then."
      )
    }
    const before = yield* stateOf(file)
    yield* requireClosed(file)
    return {
      requireUnchanged: Effect.zipRight(
        requireClosed(file),
        Effect.flatMap(stateOf(file), now =>
          now === before ? Effect.void : refuse(`${file} was written while it was copied`, hintFor(file))
        )
      )
    }
  })
