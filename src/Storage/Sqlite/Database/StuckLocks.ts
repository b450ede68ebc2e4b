/** A lock that is in the way for this long, in milliseconds, is not one that another program holds in passing. */
const patience = 500

/** The shortest time between two attempts to be rid of it, in milliseconds: each of them ends the lists under way. */
const pause = 5000

/**
 * Notices locks that nobody gives up.
 *
 * SQLite notes the locks of a process in tables of its own. Where the operating system fails to give a lock up, the
 * note stays, and every later attempt to take the lock finds it busy, even by the connection that has it. The tables go
 * when the last connection of the process to the file is closed.
 */
export class StuckLocks {
  #since: number | undefined
  #triedAt = Number.NEGATIVE_INFINITY

  constructor(
    /** Monotonic time in milliseconds. */
    private readonly now: () => number
  ) {}

  /**
   * A request failed because of a lock, after SQLite tried for so many milliseconds by itself. Returns whether all
   * connections to the file must be closed.
   */
  onLocked(tried = 0): boolean {
    const now = this.now()
    this.#since ??= now
    if (now - this.#since + tried < patience || now - this.#triedAt < pause) return false
    this.#triedAt = now
    return true
  }

  /** A write got the locks that it needs. */
  onDone(): void {
    this.#since = undefined
  }
}
