/** Locks by which one process owns what is in a directory. */
import Database from "better-sqlite3"
import { idOf, makeFile } from "./FileSystem.ts"

/** Against whom a lock is: everybody, or those who can write its file where this process can only read it. */
type LockKind = "exclusive" | "shared"

interface HeldLock {
  readonly db: Database.Database
  readonly id: string | undefined
}

/**
 * Proof that this process owns what is in a directory, such as a database.
 *
 * The lock is that of a SQLite transaction on a file in the directory: the operating system releases it however the
 * process ends. The file must not be opened in another way, since closing it would release the lock.
 */
export class Lock {
  private held: HeldLock

  /** Takes the lock. Throws where it cannot be taken. */
  constructor(
    readonly file: string,
    private readonly kind: LockKind = "exclusive"
  ) {
    this.held = lock(file, kind)
  }

  /**
   * Whether this process still owns it. Where the lock's file was removed, a new one is locked if no other
   * process has locked it. It is false while the system cannot tell which file that is. It never throws.
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

const lock = (file: string, kind: LockKind): HeldLock => {
  makeFile(file)
  const db = new Database(file, { timeout: 0 })
  try {
    // A journal in a file would need room on a disk that may be full.
    db.pragma("journal_mode = MEMORY")
    db.exec("BEGIN EXCLUSIVE")
    // SQLite takes a shared lock instead of an exclusive one on a file that it cannot write. This fails then; it changes
    // nothing, as the transaction is never committed.
    if (kind === "exclusive") db.pragma("user_version = 0")
    return { db, id: idOf(file) }
  } catch (error) {
    db.close()
    throw error
  }
}
