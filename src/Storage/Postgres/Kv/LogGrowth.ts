import { Effect } from "effect"

interface End {
  readonly epoch: string
  readonly lastSeq: number
}

/**
 * Notices that the log ends before changes that this node has committed or read, although it has the same epoch: the
 * database was brought back to an older state. Notifications do not count, because any program can send them.
 */
export class LogGrowth {
  private read: End | undefined
  /** The last `seq` that this node has committed. */
  private own = 0
  /** The last `seq` that this node knew when it sent the group at hand. */
  private sentAfter = 0
  private isBehind = false

  /** A group is sent now, in one call or several. Groups must not overlap. */
  sending(): void {
    this.sentAfter = this.known
  }

  /** The node has committed a group, or a part of it, to a log that ended at `base` before. */
  committed(lastSeq: number, base: number): void {
    if (base < Math.max(this.own, this.sentAfter)) this.isBehind = true
    this.own = lastSeq
  }

  private get known(): number {
    return Math.max(this.own, this.read?.lastSeq ?? 0)
  }

  /** Reads the end of the log, and adds whether the log lacks changes. Calls must not overlap. */
  check<A extends End, E>(read: Effect.Effect<A, E>): Effect.Effect<A & { readonly isCut: boolean }, E> {
    return Effect.suspend(() => {
      const before = this.known
      return Effect.map(read, found => {
        const isSame = found.epoch === this.read?.epoch
        const isCut = isSame && (this.isBehind || found.lastSeq < before)
        if (!isSame || isCut) {
          this.own = 0
          this.sentAfter = 0
          this.isBehind = false
        }
        this.read = { epoch: found.epoch, lastSeq: found.lastSeq }
        return { ...found, isCut }
      })
    })
  }
}
