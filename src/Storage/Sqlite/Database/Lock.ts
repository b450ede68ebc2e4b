import Database from "better-sqlite3"
import { Effect, type Scope } from "effect"
import { makeFile } from "./Directory.ts"
import { idOf } from "./FileIdentity.ts"
import { StoreRefused } from "./StoreRefused.ts"

/** Proof that this process owns a database. */
export interface Lock {
  readonly file: string
  /**
   * Whether it still owns it. Where the lock's file was removed, a new one is locked if no other process has locked it.
   * It is false while the system cannot tell which file that is. It never throws.
   */
  readonly isHeld: () => boolean
}

interface Held {
  readonly db: Database.Database
  readonly identity: string | undefined
}

/**
 * Owns a database until the scope closes or the process ends.
 *
 * The lock is that of a SQLite transaction on a file beside the database: the operating system releases it however the
 * process ends. The file must not be opened in another way, since closing it would release the lock.
 */
export const acquire = (file: string): Effect.Effect<Lock, StoreRefused, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.try({
      try: () => {
        let held = lock(file)
        const isHeld = (): boolean => {
          try {
            if (idOf(file) === held.identity) return true
            const next = lock(file)
            held.db.close()
            held = next
            return true
          } catch {
            return false
          }
        }
        return { file, isHeld, close: () => held.db.close() }
      },
      catch: error => new StoreRefused({ file, reason: reasonOf(error) })
    }),
    ({ close }) => Effect.sync(close)
  )

const lock = (file: string): Held => {
  makeFile(file)
  const db = new Database(file, { timeout: 0 })
  try {
    // A journal in a file would need room on a disk that may be full.
    db.pragma("journal_mode = MEMORY")
    db.exec("BEGIN EXCLUSIVE")
    return { db, identity: idOf(file) }
  } catch (error) {
    db.close()
    throw error
  }
}

const reasonOf = (error: unknown): string => {
  const code = error instanceof Database.SqliteError ? error.code : ""
  if (code.startsWith("SQLITE_BUSY")) {
    return "is locked: another process has this store open, and a store belongs to one process at a time"
  }
  if (code === "SQLITE_NOTADB") return "is not the lock of a store"
  return `cannot be locked (${error instanceof Error ? error.message : String(error)})`
}
