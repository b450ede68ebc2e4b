/**
 * Which nodes do not renew their leases, as another one sees it by its own monotonic clock. By the clock of the database
 * alone, a node that is gone would keep its sessions for as long as that clock was set back.
 */

/** A node, and how often it has renewed its lease. */
export interface Renewals {
  readonly node: string
  readonly renewals: number
  /** How long its lease is, in milliseconds. */
  readonly lease: number
}

interface Seen {
  readonly renewals: number
  /** When this count was first seen. */
  readonly at: number
}

/** What one node has seen of the others. Times are monotonic milliseconds of that node. */
export class NodeWatch {
  private seen = new Map<string, Seen>()
  private lookedAt = Number.NEGATIVE_INFINITY

  constructor(
    /** Milliseconds. */
    private readonly lease: number
  ) {}

  /**
   * Notes what was read at a time. Returns those that have not renewed their leases for a whole lease, theirs and this
   * node's, during which it has read them again and again: while it cannot reach the database, the others perhaps
   * cannot either.
   */
  look(now: number, others: ReadonlyArray<Renewals>): ReadonlyArray<Renewals> {
    const known = now - this.lookedAt <= this.lease / 2 ? this.seen : new Map<string, Seen>()
    this.lookedAt = now
    this.seen = new Map(
      others.map(({ node, renewals }) => {
        const before = known.get(node)
        return [node, before?.renewals === renewals ? before : { renewals, at: now }]
      })
    )
    return others.filter(({ lease, node }) => now - this.seen.get(node)!.at >= Math.max(this.lease, lease))
  }
}
