/**
 * Finds nodes that do not renew their leases, by the monotonic clock of this node. If only the clock of the database
 * counted, a node that is gone would keep its sessions for as long as that clock was set back.
 */

/** A node, and the number of renewals of its lease. */
export interface Renewals {
  readonly node: string
  readonly renewals: number
  /** The length of its lease, in milliseconds. */
  readonly lease: number
}

interface Seen {
  readonly renewals: number
  /** When this number was first seen. */
  readonly at: number
}

/** The observations of one node. Times are its monotonic milliseconds. */
export class NodeWatch {
  private seen = new Map<string, Seen>()
  private lookedAt = Number.NEGATIVE_INFINITY

  constructor(
    /** The length of the lease of this node, in milliseconds. */
    private readonly lease: number
  ) {}

  /**
   * Records the leases read at a time. Returns the nodes that have not renewed theirs for the longer of their lease and
   * that of this node. This node must have read them throughout: while it cannot reach the database, the others may not
   * reach it either.
   */
  update(now: number, others: ReadonlyArray<Renewals>): ReadonlyArray<Renewals> {
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
