/**
 * Decides how long a group commit waits for more writes.
 *
 * Closed-loop clients write again as soon as they are answered. Without a wait they split into two halves that take
 * turns, and there are twice as many commits as needed. A group therefore waits until as many writes are queued as were
 * in flight or queued when the last group was answered. The wait is at most `maxCommits` average commit times.
 *
 * Clients may be too far away to return in time. A wait has paid if
 * `arrived × averageCommitMillis ≥ waitMillis × presentAtStart`: each write that arrived saved one commit time, and each
 * write that was present waited. After a wait that has not paid, the next groups do not wait for returning clients. After
 * a wait that has paid but not brought all, they wait for as many as returned. The number of such groups doubles with
 * each failed attempt to wait for all, up to `maxBackoff`, and is one again after an attempt that brought all.
 */

/** The longest wait, as a multiple of the average commit time. */
const maxCommits = 2

/** The weight of the newest commit in the exponentially weighted moving average of commit times. */
const smoothing = 0.25

/** The maximum number of groups between two attempts to wait for all returning clients. */
const maxBackoff = 32

/** A wait that has ended. */
export interface Wait {
  /** How many writes were queued at its start. */
  readonly presentAtStart: number
  readonly millis: number
}

/** Decides how long the next group waits for more writes, by the times and sizes of the last ones. */
export class BatchWindow {
  /** The moving average of commit times in milliseconds, or `undefined` before the first commit. */
  private averageCommitMillis: number | undefined
  /** How many clients returned during the last wait that fell short, or 0 if that wait has not paid. */
  private lastReturned = 0
  /** How many groups are left before the next attempt to wait for all returning clients. */
  private backoffLeft = 0
  /** The value of `backoffLeft` after the last failed attempt, or 0 after an attempt that brought all. */
  private backoff = 0
  /** Whether the next group waits for all returning clients. */
  private waitsForAll = true
  /** How many queued writes the next group waits for. */
  expected = 0

  /** `maxMillis` is the longest wait in milliseconds. */
  constructor(private readonly maxMillis: number) {}

  /** The longest wait of the next group, in milliseconds. */
  get maxWaitMillis(): number {
    return Math.min(this.maxMillis, maxCommits * (this.averageCommitMillis ?? 0))
  }

  /** A group of `size` writes was answered after `millis` milliseconds, while `queued` writes waited. */
  onAnswered(size: number, queued: number, millis: number): void {
    const average = this.averageCommitMillis
    this.averageCommitMillis = average === undefined ? millis : average + smoothing * (millis - average)
    this.waitsForAll = this.backoffLeft === 0
    if (!this.waitsForAll) this.backoffLeft--
    this.expected = queued + (this.waitsForAll ? size : Math.min(size, this.lastReturned))
  }

  /** A group of `size` writes was taken after a wait. */
  onTaken(size: number, { millis, presentAtStart }: Wait): void {
    const arrived = size - presentAtStart
    const hasPaid = arrived * (this.averageCommitMillis ?? 0) >= millis * presentAtStart
    if (hasPaid && size >= this.expected) {
      if (this.waitsForAll) this.backoff = 0
      return
    }
    this.lastReturned = hasPaid ? arrived : 0
    if (!this.waitsForAll) return
    this.backoff = Math.min(maxBackoff, Math.max(1, 2 * this.backoff))
    this.backoffLeft = this.backoff
  }
}
