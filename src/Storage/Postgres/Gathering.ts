/**
 * How long a node gathers writes before it commits them. While other nodes commit, a group waits in the database for the
 * lock of the log, and what comes meanwhile is not in it. So a node that has to wait anyway does a part of it before it
 * closes the group: groups are larger, and there are fewer of them.
 */

/** The part of the wait that is spent so. The rest is left, so that the group is in line before its turn comes. */
const part = 0.5

/** The most milliseconds: a commit of another node that takes long is no reason to be late after it. */
const most = 5

/** How much of the average the newest wait is. */
const weight = 0.25

/** Milliseconds after which what was measured tells nothing of the next wait. */
const staleAfter = 100

export class Gathering {
  private beganAt = 0
  private gathered = 0
  private measuredAt = 0
  /** The average of the milliseconds from the moment that a group could be sent to its turn. */
  private wait = 0

  /** `now` tells monotonic milliseconds. */
  constructor(private readonly now: () => number) {}

  /** The group can be sent. Returns the milliseconds for which it may be gathered; timers know no fractions. */
  begin(): number {
    this.beganAt = this.now()
    if (this.beganAt - this.measuredAt > staleAfter) this.wait = 0
    return Math.floor(Math.min(most, part * this.wait))
  }

  /** The group is sent. */
  sent(): void {
    this.gathered = this.now() - this.beganAt
  }

  /** The group has waited so many milliseconds for the lock. */
  waited(millis: number): void {
    this.measuredAt = this.now()
    this.wait += weight * (this.gathered + millis - this.wait)
  }
}
