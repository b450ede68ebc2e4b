/**
 * For how many writes a group waits before it is taken, and for how long.
 *
 * Callers that write again as soon as they are answered come in two halves unless groups are gathered: the answered half
 * returns just after the other half has been taken. Then there are twice as many commits as are needed. So a group waits
 * until those that were answered are back, unless it is full before. The wait is bounded by a fixed multiple of what a
 * commit takes.
 *
 * Callers may also not return, or be too far away to return in time. A wait has paid if the commit that each write that
 * came is spared adds up to at least what the writes that were there have waited. After one that has not paid, the next
 * groups do not wait for the answered; after one that has paid, although some did not come, the next groups wait for as
 * many as came. That holds for one group, and for twice as many each time that waiting for all has failed again.
 */

/** How many times as long as a commit takes a group waits at most. */
const gatheredCommits = 2

/** How much of the average time of a commit the newest one is. */
const newest = 0.25

/** The most groups between two attempts to wait for all. */
const longestPause = 32

/** A wait that is over. */
export interface Wait {
  /** How many writes were there at its beginning. */
  readonly there: number
  readonly millis: number
}

export class Gathering {
  /** The average time of commits in milliseconds, once there was one. */
  private average: number | undefined
  /** How many of the answered are waited for, unless it is all of them. */
  private returning = 0
  /** For how many groups it is not all of them. */
  private left = 0
  /** For how many groups it was not, the last time. */
  private pause = 0
  private isForAll = true
  /** How many writes the next group waits for. */
  expected = 0

  /** `most` is the longest wait in milliseconds. */
  constructor(private readonly most: number) {}

  /** How long the next group waits at most, in milliseconds. */
  get limit(): number {
    return Math.min(this.most, gatheredCommits * (this.average ?? 0))
  }

  /** A group of so many writes was answered after so many milliseconds, while others waited. */
  answered(group: number, waiting: number, millis: number): void {
    this.average = this.average === undefined ? millis : this.average + newest * (millis - this.average)
    this.isForAll = this.left === 0
    if (!this.isForAll) this.left--
    this.expected = waiting + (this.isForAll ? group : Math.min(group, this.returning))
  }

  /** A group of so many writes was taken after a wait. */
  taken(group: number, { millis, there }: Wait): void {
    const came = group - there
    const hasPaid = came * (this.average ?? 0) >= millis * there
    if (hasPaid && group >= this.expected) {
      if (this.isForAll) this.pause = 0
      return
    }
    this.returning = hasPaid ? came : 0
    if (!this.isForAll) return
    this.pause = Math.min(longestPause, Math.max(1, 2 * this.pause))
    this.left = this.pause
  }
}
