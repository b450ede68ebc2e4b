/**
 * When a node tells the others how far it has committed. A notification takes a lock of the whole server at its commit
 * and wakes every node, so that all nodes together send about one in an interval, however many they are: a node that
 * has heard one waits for the interval, and one that has heard of a later commit than its own has nothing to tell.
 */

/** Milliseconds between two notifications, of whatever node. */
const interval = 10

/** Milliseconds after which a commit is announced, however often others have announced theirs. */
const latest = 50

export class Announcements {
  /** The last `seq` that is to be announced. A later one may be lower, where the log was replaced by another. */
  private pending: number | undefined
  private pendingSince = 0
  private announced = 0
  /** When a notification was heard or sent last. */
  private lastAt = Number.NEGATIVE_INFINITY

  /** `now` tells monotonic milliseconds. */
  constructor(private readonly now: () => number) {}

  get isPending(): boolean {
    return this.pending !== undefined
  }

  /** This node has committed up to here. */
  committed(lastSeq: number): void {
    if (lastSeq === (this.pending ?? this.announced)) return
    if (this.pending === undefined) this.pendingSince = this.now()
    this.pending = Math.max(this.pending ?? 0, lastSeq)
  }

  /** Somebody has announced commits up to here. A node hears its own notification too, perhaps after a later commit. */
  heard(lastSeq: number): void {
    this.lastAt = this.now()
    if (lastSeq !== this.announced && this.pending !== undefined && lastSeq >= this.pending) this.take()
  }

  /** Milliseconds until this node announces what is pending, unless it hears of others meanwhile. */
  wait(): number {
    const since = Math.max(this.lastAt, this.pendingSince)
    return Math.max(0, Math.min(since + interval, this.pendingSince + latest) - this.now())
  }

  /** Returns what is to be announced now, if anything. */
  take(): number | undefined {
    const { pending } = this
    if (pending === undefined) return undefined
    this.lastAt = this.now()
    this.announced = pending
    this.pending = undefined
    return pending
  }
}
