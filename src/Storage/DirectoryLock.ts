/** Locks of one process on the content of a directory. */
import type Database from "better-sqlite3"
import { idOf, makeFile } from "./FileSystem.ts"
import { connect } from "./SqliteDriver.ts"

/**
 * The processes that a lock excludes: all others, or only those that can write its file, if this process cannot.
 */
type LockKind = "exclusive" | "shared"

interface HeldLock {
  readonly db: Database.Database
  readonly id: string | undefined
}

/**
 * Proof that this process owns the content of a directory, such as a database.
 *
 * The lock is that of a SQLite transaction on a file in the directory: the operating system releases it however the
 * process ends. The file must not be opened in another way, because closing it would release the lock.
 */
export class Lock {
  private held: HeldLock

  /** Takes the lock. Throws if it cannot be taken. */
  constructor(
    readonly file: string,
    private readonly kind: LockKind = "exclusive"
  ) {
    this.held = lock(file, kind)
  }

  /**
   * Whether this process still has the lock. If the lock's file was removed, locks a new one, unless another process
   * has locked it. Returns false while the system cannot identify the file. Never throws.
   */
  isHeld(): boolean {
    try {
      if (idOf(this.file) === this.held.id) return true
      const next = lock(this.file, this.kind)
      this.held.db.close()
      this.held = next
      return true
    } catch {
      return false
    }
  }

  close(): void {
    this.held.db.close()
  }
}

/** Whether a lock could not be taken because another process has it. */
export const isLockedByAnother = (error: unknown): boolean =>
  error instanceof Error && "code" in error && String(error.code).startsWith("SQLITE_BUSY")

const lock = (file: string, kind: LockKind): HeldLock => {
  makeFile(file)
  const db = connect(file, { timeout: 0 })
  try {
    // A journal file would need space on a disk that may be full.
    db.pragma("journal_mode = MEMORY")
    db.exec("BEGIN EXCLUSIVE")
    // On a file that it cannot write, SQLite takes a shared lock instead of an exclusive one. This statement fails
    // then. It changes nothing, because the transaction is never committed.
    if (kind === "exclusive") db.pragma("user_version = 0")
    return { db, id: idOf(file) }
  } catch (error) {
    db.close()
    throw error
  }
}
