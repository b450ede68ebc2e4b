/** A lock that cannot be taken for this long is stuck: other programs hold locks only briefly. */
const stuckAfterMillis = 500

/** The minimum time between two attempts to drop a stuck lock. Each attempt ends all snapshots. */
const retryIntervalMillis = 5000

/** Failures that are further apart are attributed to different locks. */
const sameLockMillis = 60_000

/** More different locks in a row, without a write in between, are one stuck lock of a store that is rarely used. */
const maxDifferentLocks = 2

/**
 * Detects locks that are never released.
 *
 * SQLite keeps the locks of a process in its own tables. If the operating system fails to release a lock, it stays in
 * the table, and every later attempt to take it fails with SQLITE_BUSY, even on the connection that has it. The table
 * is dropped when the last connection of the process to the file is closed.
 */
export class StuckLocks {
  private since: number | undefined
  /** The number of different locks since the last write. */
  private count = 0
  private lastAt = Number.NEGATIVE_INFINITY
  private triedAt = Number.NEGATIVE_INFINITY

  constructor(
    /** Monotonic time in milliseconds. */
    private readonly now: () => number
  ) {}

  /**
   * Must be called after a read or a write failed because of a lock that SQLite itself tried to take for `tried`
   * milliseconds. Returns whether all connections to the file must be closed.
   */
  onLocked(tried = 0): boolean {
    const now = this.now()
    if (this.since === undefined || now - this.lastAt > sameLockMillis) {
      this.since = now
      this.count++
    }
    this.lastAt = now
    const isStuck = this.count > maxDifferentLocks || now - this.since + tried >= stuckAfterMillis
    if (!isStuck || now - this.triedAt < retryIntervalMillis) return false
    this.triedAt = now
    return true
  }

  /** A write has taken all its locks. A read does not show that. */
  onWritten(): void {
    this.since = undefined
    this.count = 0
  }
}
