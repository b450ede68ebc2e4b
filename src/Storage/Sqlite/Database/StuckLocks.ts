/** A lock that cannot be taken for this long is not one that another program holds in passing; in milliseconds. */
const stuckAfter = 500

/** The least time between two attempts to drop it, in milliseconds: each of them ends all snapshots. */
const retryEvery = 5000

/** Failures that are further apart are taken for those of different locks, in milliseconds. */
const sameLockWithin = 60_000

/** More of them in a row, without a write in between, are one stuck lock of a store that is seldom used. */
const maxPassing = 2

/**
 * Detects locks that are never released.
 *
 * SQLite keeps the locks of a process in tables of its own. Where the operating system fails to release a lock, it stays
 * in the table, and every later attempt to take it fails with SQLITE_BUSY, even by the connection that has it. The table
 * is dropped when the last connection of the process to the file is closed.
 */
export class StuckLocks {
  private since: number | undefined
  /** Different locks since the last write. */
  private count = 0
  private lastAt = Number.NEGATIVE_INFINITY
  private triedAt = Number.NEGATIVE_INFINITY

  constructor(
    /** Monotonic time in milliseconds. */
    private readonly now: () => number
  ) {}

  /**
   * A read or a write failed because of a lock, after SQLite itself tried for so many milliseconds. Returns whether all
   * connections to the file must be closed.
   */
  onLocked(tried = 0): boolean {
    const now = this.now()
    if (this.since === undefined || now - this.lastAt > sameLockWithin) {
      this.since = now
      this.count++
    }
    this.lastAt = now
    const isStuck = this.count > maxPassing || now - this.since + tried >= stuckAfter
    if (!isStuck || now - this.triedAt < retryEvery) return false
    this.triedAt = now
    return true
  }

  /** A write took all its locks. A read does not show that. */
  onWritten(): void {
    this.since = undefined
    this.count = 0
  }
}
