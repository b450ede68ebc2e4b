/**
 * When a node notifies the others of its commits. A notification takes a lock of the whole server at its commit and
 * wakes every node. So all nodes together send about one notification in an interval, whatever their number: a node
 * that has received one waits for the interval, and a node that has received one of a later commit than its own sends
 * none.
 */

/** The time between two notifications of any node, in milliseconds. */
const intervalMillis = 10

/** The time after which the node sends its notification, however often others have sent theirs, in milliseconds. */
const maxDelayMillis = 50

/** Decides when this node notifies the others of its commits, so that a few notifications cover many commits. */
export class NotificationSchedule {
  /** The last `seq` to be sent. A later one may be lower if the log was replaced by another. */
  private pending: number | undefined
  private pendingSince = 0
  private sent = 0
  /** When the last notification was received or sent. */
  private lastAt = Number.NEGATIVE_INFINITY

  /** @param now returns monotonic milliseconds */
  constructor(private readonly now: () => number) {}

  get isPending(): boolean {
    return this.pending !== undefined
  }

  /** This node has committed up to `lastSeq`. */
  committed(lastSeq: number): void {
    if (lastSeq === (this.pending ?? this.sent)) return
    if (this.pending === undefined) this.pendingSince = this.now()
    this.pending = Math.max(this.pending ?? 0, lastSeq)
  }

  /** A notification has arrived. A node receives its own notifications too, possibly after a later commit. */
  received(lastSeq: number): void {
    this.lastAt = this.now()
    if (lastSeq !== this.sent && this.pending !== undefined && lastSeq >= this.pending) this.take()
  }

  /** Returns the milliseconds until this node sends its notification, unless it receives another one before. */
  wait(): number {
    const since = Math.max(this.lastAt, this.pendingSince)
    return Math.max(0, Math.min(since + intervalMillis, this.pendingSince + maxDelayMillis) - this.now())
  }

  /** Returns the last `seq` to be sent now, if any. */
  take(): number | undefined {
    const { pending } = this
    if (pending === undefined) return undefined
    this.lastAt = this.now()
    this.sent = pending
    this.pending = undefined
    return pending
  }
}
