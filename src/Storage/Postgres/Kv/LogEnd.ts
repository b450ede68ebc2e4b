/**
 * The end of the log, as far as a node knows it.
 */
import { Effect } from "effect"
import { LastSeq } from "../../Commit/StoreCommit.ts"

interface End {
  readonly epoch: string
  readonly lastSeq: number
}

/** What one node knows. Reads and notifications of several nodes report the end in any order. */
export class LogEnd {
  private readonly end = new LastSeq()
  /** The last known `seq`. */
  last = 0
  /** The end that was read last. */
  private found: End | undefined
  /** The last `seq` that this node has committed. */
  private own = 0
  /** The last `seq` that this node had committed or read when it sent the group at hand. */
  private sentAfter = 0
  /** Whether a group was added to a log that ended before what was known. */
  private isBehind = false

  /** The log has grown to `lastSeq` or beyond. */
  advance(lastSeq: number): void {
    if (lastSeq <= this.last) return
    this.last = lastSeq
    this.end.set(lastSeq)
  }

  /** A group is sent now, in one call or several. Groups must not overlap. */
  sending(): void {
    this.sentAfter = this.least
  }

  /** The node has committed a group, or a part of it, to a log that ended at `base` before. */
  committed(lastSeq: number, base: number): void {
    if (base < Math.max(this.own, this.sentAfter)) this.isBehind = true
    this.own = lastSeq
    this.advance(lastSeq)
  }

  /** What the log had at least: notifications do not count, because any program can send them. */
  private get least(): number {
    return Math.max(this.own, this.found?.lastSeq ?? 0)
  }

  /**
   * Reads the end. Calls must not overlap. If the log ends before changes that this node has committed or read, although
   * it has the same epoch, the database was brought back to an older state: `renewEpoch` runs, and the end is read
   * again.
   *
   * All waiting callers are woken if the log has another epoch, or ends before the end that was known when the read
   * started: a log only grows, so that this is another log.
   */
  read<E>(ask: Effect.Effect<End, E>, renewEpoch: (found: End) => Effect.Effect<void, E>): Effect.Effect<void, E> {
    return Effect.suspend(() => {
      const { found: before, last, least } = this
      return Effect.flatMap(ask, found => {
        this.found = found
        const isSame = found.epoch === before?.epoch
        const isCut = isSame && (this.isBehind || found.lastSeq < least)
        if (!isSame || isCut) {
          this.own = 0
          this.sentAfter = 0
          this.isBehind = false
        }
        if (isCut) return Effect.zipRight(renewEpoch(found), this.read(ask, renewEpoch))
        if ((before === undefined || isSame) && found.lastSeq >= last) this.advance(found.lastSeq)
        else {
          this.end.set(0)
          this.last = found.lastSeq
          this.end.set(found.lastSeq)
        }
        return Effect.void
      })
    })
  }

  awaitPast(seq: number): Effect.Effect<void> {
    return this.end.awaitPast(seq)
  }
}
