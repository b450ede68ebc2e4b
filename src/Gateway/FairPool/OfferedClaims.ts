/** What is to be known of a claim that the pool may release for others. Nothing here may throw. */
export interface Reclaimable {
  /** Whether it may be reclaimed at present; always where absent. */
  readonly isReclaimable?: () => boolean
  /** Called once it is released for others. */
  readonly onReclaim: () => void
}

/** A claim that may be offered, and its neighbors in the list of those that are. */
export interface Offerable<C> {
  offered: Reclaimable | undefined
  previous: C | undefined
  next: C | undefined
}

/** The claims that one holder has offered, in order: a linked list, as claims are withdrawn from anywhere in it. */
export class OfferedClaims<C extends Offerable<C>> {
  private oldest: C | undefined
  private newest: C | undefined

  get isEmpty(): boolean {
    return this.oldest === undefined
  }

  /** Adds a claim that is not offered, as the newest. */
  add(claim: C, reclaimable: Reclaimable): void {
    claim.offered = reclaimable
    claim.previous = this.newest
    if (this.newest === undefined) this.oldest = claim
    else this.newest.next = claim
    this.newest = claim
  }

  /** Removes a claim that is offered. */
  remove(claim: C): void {
    const { next, previous } = claim
    if (previous === undefined) this.oldest = next
    else previous.next = next
    if (next === undefined) this.newest = previous
    else next.previous = previous
    claim.offered = undefined
    claim.previous = undefined
    claim.next = undefined
  }

  /** The first claim that may be reclaimed at present, from one end of the list. */
  first(from: "oldest" | "newest"): C | undefined {
    for (let claim = this[from]; claim !== undefined; ) {
      if (claim.offered?.isReclaimable?.() !== false) return claim
      claim = from === "newest" ? claim.previous : claim.next
    }
    return undefined
  }
}
