/** What a holder has of a fair pool, or waits for. */
import { constVoid } from "effect/Function"
import type { Linked } from "../../base/Intrusive.ts"

/** The callbacks of a claim that the pool may reclaim. They must not throw. */
export interface Reclaimable {
  /** Whether it may be reclaimed at present; always if absent. */
  readonly isReclaimable?: () => boolean
  /** Called after it was reclaimed. */
  readonly onReclaim: () => void
}

/** The operations of a pool that its claims use. */
interface Pool {
  readonly resize: (claim: Claim, size: number) => boolean
  readonly offer: (claim: Claim, reclaimable: Reclaimable) => void
  readonly withdraw: (claim: Claim) => void
  readonly release: (claim: Claim) => void
}

/** A part of a pool that a holder has or waits for. */
export class Claim implements Linked<Claim> {
  /** @internal */
  state: "waiting" | "held" | "over" = "waiting"
  /** @internal */
  offered: Reclaimable | undefined
  /** @internal The claims of the holder that were offered before and after. */
  previous: Claim | undefined
  /** @internal */
  next: Claim | undefined

  /** @internal */
  constructor(
    private readonly pool: Pool,
    readonly holder: string,
    /** @internal */
    public size: number,
    /** @internal */
    readonly onDecided: (isGranted: boolean) => void
  ) {}

  get isHeld(): boolean {
    return this.state === "held"
  }

  /** Makes a held claim smaller, or larger if the pool allows it. Returns whether it has the size now. */
  resize(size: number): boolean {
    return this.pool.resize(this, size)
  }

  /** Lets the pool reclaim this held claim until {@link withdraw}. It is the newest offered claim of its holder. */
  offer(reclaimable: Reclaimable): void {
    if (this.state === "held") this.pool.offer(this, reclaimable)
  }

  /** Undoes {@link offer}. The claim stays held. */
  withdraw(): void {
    this.pool.withdraw(this)
  }

  /** Releases the claim, or stops waiting. Idempotent. */
  release(): void {
    this.pool.release(this)
  }

  /** Moves the held part to another claim, which the end of `use` does not release. */
  detach(): Claim {
    this.withdraw()
    const next = new Claim(this.pool, this.holder, this.size, constVoid)
    next.state = this.state
    this.state = "over"
    return next
  }
}
