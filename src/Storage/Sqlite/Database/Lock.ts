import Database from "better-sqlite3"
import { Effect, type Scope } from "effect"
import { makeFile } from "./Directory.ts"
import { identityOf } from "./FileIdentity.ts"
import { StoreRefused } from "./StoreRefused.ts"

/** That this process owns the store. */
export interface Lock {
  readonly file: string
  /**
   * Whether it still does; where the lock's file was taken away, a new one is locked if nobody else has. It is denied
   * while the system does not say which file that is. It never throws.
   */
  readonly isHeld: () => boolean
}

interface Held {
  readonly db: Database.Database
  readonly identity: string | undefined
}

/**
 * Owns a store for as long as the scope is open, or the process lives.
 *
 * The lock is SQLite's own, on a file beside the database, since a lock of the operating system goes with its process
 * however that dies. The file must not be opened by other means: to close it would give up the lock.
 */
export const acquire = (file: string): Effect.Effect<Lock, StoreRefused, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.try({
      try: () => {
        let held = lock(file)
        const isHeld = (): boolean => {
          try {
            if (identityOf(file) === held.identity) return true
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
    // A journal in a file would be one more to make, on a disk that may be full.
    db.pragma("journal_mode = MEMORY")
    db.exec("BEGIN EXCLUSIVE")
    return { db, identity: identityOf(file) }
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
