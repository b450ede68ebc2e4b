import { type Linked, LinkedList } from "../../LinkedList.ts"

/** The callbacks of a claim that the pool may reclaim. They must not throw. */
export interface Reclaimable {
  /** Whether it may be reclaimed at present; always if absent. */
  readonly isReclaimable?: () => boolean
  /** Called after it was reclaimed. */
  readonly onReclaim: () => void
}

/** A claim that may be offered. */
export interface Offerable<C> extends Linked<C> {
  offered: Reclaimable | undefined
}

/** The claims that one holder has offered, in order. */
export class OfferedClaims<C extends Offerable<C>> {
  private readonly claims = new LinkedList<C>()

  get isEmpty(): boolean {
    return this.claims.oldest === undefined
  }

  /** Adds a claim that is not offered, as the newest. */
  add(claim: C, reclaimable: Reclaimable): void {
    claim.offered = reclaimable
    this.claims.add(claim)
  }

  /** Removes a claim that is offered. */
  remove(claim: C): void {
    this.claims.remove(claim)
    claim.offered = undefined
  }

  /** The first claim that may be reclaimed at present, from one end of the list. */
  first(from: "oldest" | "newest"): C | undefined {
    for (let claim = this.claims[from]; claim !== undefined; ) {
      if (claim.offered?.isReclaimable?.() !== false) return claim
      claim = from === "newest" ? claim.previous : claim.next
    }
    return undefined
  }
}
