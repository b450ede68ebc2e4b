/**
 * A bounded resource that tenants share max-min fairly.
 *
 * A pool that is not full grants every request. A full pool reclaims from its largest holder if possible, and grants what
 * is released to the waiting holder that has the least. A request is refused if only smaller holders could make room for
 * it.
 */
import { Deferred, type Duration, Effect, FiberId } from "effect"
import { constVoid } from "effect/Function"
import { type Linked, LinkedList } from "../base/Intrusive.ts"
import { SessionsBusy } from "./Sessions.ts"

/** The callbacks of a claim that the pool may reclaim. They must not throw. */
export interface Reclaimable {
  /** Whether it may be reclaimed at present; always if absent. */
  readonly isReclaimable?: () => boolean
  /** Called after it was reclaimed. */
  readonly onReclaim: () => void
}

/** A part of a pool that a holder has or waits for. */
export class Claim implements Linked<Claim> {
  /** @internal */
  state: "waiting" | "held" | "over" = "waiting"
  /** @internal */
  offered: Reclaimable | undefined
  /** For the pool alone: the claims of the holder that were offered before and after. */
  previous: Claim | undefined
  next: Claim | undefined

  /** @internal */
  constructor(
    private readonly pool: FairPool,
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

/** The resource and its limits. */
export interface Options {
  /** The name of the resource, for messages. */
  readonly name: string
  /** In the unit of the resource, such as bytes, calls or connections. */
  readonly capacity: number
  /** What one holder may have; the whole capacity if absent. For resources that cannot be reclaimed. */
  readonly maxOfOne?: number
  /**
   * Maximum number of waiting requests of all holders; 10,000 if absent. Above it the newest request of the longest queue
   * is refused.
   */
  readonly maxWaiting?: number
  /** Which of the claims that a holder has offered is reclaimed first; the oldest if absent. */
  readonly reclaimFirst?: "oldest" | "newest"
}

interface Holder {
  readonly name: string
  held: number
  readonly waiting: Array<Claim>
  /** The sequence number of the holder's last grant. */
  servedAt: number
  /** Its claims that may be reclaimed, in the order in which they were offered. */
  readonly offered: LinkedList<Claim>
}

/** All methods but `use` are synchronous. */
export class FairPool {
  private readonly holders = new Map<string, Holder>()
  private readonly maxOfOne: number
  private readonly maxWaiting: number
  private usedSize = 0
  private waitingCount = 0
  private grants = 0
  private isServing = false

  constructor(private readonly options: Options) {
    this.maxOfOne = Math.min(options.maxOfOne ?? options.capacity, options.capacity)
    this.maxWaiting = options.maxWaiting ?? 10_000
  }

  /** The size of all held claims; at most the capacity. */
  get used(): number {
    return this.usedSize
  }

  get waiting(): number {
    return this.waitingCount
  }

  heldBy(holder: string): number {
    return this.holders.get(holder)?.held ?? 0
  }

  /** Whether the limit of one holder allows another `size`. */
  mayHave(holder: string, size: number): boolean {
    return this.heldBy(holder) + size <= this.maxOfOne
  }

  /** The holders, largest first. */
  largestFirst(): ReadonlyArray<string> {
    return [...this.holders.values()]
      .filter(({ held }) => held > 0)
      .sort((a, b) => b.held - a.held)
      .map(({ name }) => name)
  }

  /** Claims without waiting; `undefined` if the pool is full. */
  take(holder: string, size: number): Claim | undefined {
    const claim = new Claim(this, holder, size, constVoid)
    const isGranted = this.makeRoom(holder, size)
    if (isGranted) this.grant(this.holderOf(holder), claim)
    // More may have been reclaimed than was needed.
    this.serve()
    return isGranted ? claim : undefined
  }

  /** Claims, and waits if necessary. `onDecided` is called unless the claim is held or refused on return. */
  request(holder: string, size: number, onDecided: (isGranted: boolean) => void): Claim {
    let isReturned = false
    const claim = new Claim(this, holder, size, isGranted => {
      if (isReturned) onDecided(isGranted)
    })
    if (size > this.maxOfOne) claim.state = "over"
    else {
      this.holderOf(holder).waiting.push(claim)
      this.waitingCount++
      this.serve()
      if (this.waitingCount > this.maxWaiting) this.shorten()
    }
    isReturned = true
    return claim
  }

  /** Holds a claim while an effect runs. Fails with `SessionsBusy` if it is refused or waits longer than `timeout`. */
  use<A, E, R>(
    holder: string,
    size: number,
    f: (claim: Claim) => Effect.Effect<A, E, R>,
    timeout?: Duration.DurationInput
  ): Effect.Effect<A, E | SessionsBusy, R> {
    return Effect.uninterruptibleMask(restore => {
      const decided = Deferred.unsafeMake<void, SessionsBusy>(FiberId.none)
      const claim = this.request(holder, size, isGranted =>
        Deferred.unsafeDone(decided, isGranted ? Effect.void : Effect.fail(this.refusal()))
      )
      if (claim.state === "over") return Effect.fail(this.refusal())
      const held = claim.isHeld
        ? Effect.void
        : timeout === undefined
          ? Deferred.await(decided)
          : Effect.timeoutFail(Deferred.await(decided), { duration: timeout, onTimeout: () => this.refusal() })
      return Effect.ensuring(
        restore(Effect.flatMap(held, () => f(claim))),
        Effect.sync(() => claim.release())
      )
    })
  }

  refusal(): SessionsBusy {
    return new SessionsBusy({ message: `The gateway has no more ${this.options.name} for this tenant at present` })
  }

  /** @internal */
  resize(claim: Claim, size: number): boolean {
    if (claim.state !== "held") return false
    const growth = size - claim.size
    if (growth > 0 && !this.makeRoom(claim.holder, growth)) return false
    // This claim itself may have been reclaimed.
    if (!claim.isHeld) return false
    claim.size = size
    this.holderOf(claim.holder).held += growth
    this.usedSize += growth
    if (growth < 0) this.serve()
    return true
  }

  /** @internal */
  offer(claim: Claim, reclaimable: Reclaimable): void {
    this.withdraw(claim)
    claim.offered = reclaimable
    this.holderOf(claim.holder).offered.add(claim)
  }

  /** @internal */
  withdraw(claim: Claim): void {
    if (claim.offered === undefined) return
    claim.offered = undefined
    this.holderOf(claim.holder).offered.remove(claim)
  }

  /** @internal */
  release(claim: Claim): void {
    const { state } = claim
    if (state === "over") return
    this.withdraw(claim)
    claim.state = "over"
    const holder = this.holderOf(claim.holder)
    if (state === "waiting") {
      holder.waiting.splice(holder.waiting.indexOf(claim), 1)
      this.waitingCount--
    } else {
      holder.held -= claim.size
      this.usedSize -= claim.size
    }
    this.forget(holder)
    this.serve()
  }

  private holderOf(name: string): Holder {
    const known = this.holders.get(name)
    if (known !== undefined) return known
    const holder: Holder = { name, held: 0, waiting: [], servedAt: 0, offered: new LinkedList() }
    this.holders.set(name, holder)
    return holder
  }

  private forget(holder: Holder): void {
    const { held, name, offered, waiting } = holder
    if (held === 0 && waiting.length === 0 && offered.oldest === undefined) this.holders.delete(name)
  }

  private grant(holder: Holder, claim: Claim): void {
    holder.held += claim.size
    holder.servedAt = ++this.grants
    this.usedSize += claim.size
    claim.state = "held"
    claim.onDecided(true)
  }

  /** Whether there is room for another `size` of a holder. Reclaims from larger holders if necessary. */
  private makeRoom(name: string, size: number): boolean {
    const { capacity } = this.options
    if (!this.mayHave(name, size)) return false
    const wanted = this.heldBy(name) + size
    const exhausted = new Set<Holder>()
    while (this.usedSize + size > capacity) {
      const largest = this.best(
        (a, b) => a.held > b.held,
        holder => !exhausted.has(holder) && holder.name !== name && holder.held > wanted
      )
      if (largest === undefined) return false
      const before = this.usedSize
      const wasServing = this.isServing
      // What is reclaimed is for this request, not for the waiting ones.
      this.isServing = true
      const isReclaimed = this.reclaim(largest)
      this.isServing = wasServing
      if (!isReclaimed || this.usedSize >= before) exhausted.add(largest)
    }
    return true
  }

  /** Releases one of the claims that a holder has offered. Returns whether there was one. */
  private reclaim({ offered }: Holder): boolean {
    const isNewestFirst = this.options.reclaimFirst === "newest"
    let claim = isNewestFirst ? offered.newest : offered.oldest
    while (claim?.offered?.isReclaimable?.() === false) claim = isNewestFirst ? claim.previous : claim.next
    if (claim === undefined) return false
    const { offered: reclaimed } = claim
    claim.release()
    reclaimed?.onReclaim()
    return true
  }

  /** The best candidate; the oldest of equal ones. */
  private best(
    isBetter: (a: Holder, b: Holder) => boolean,
    isCandidate: (holder: Holder) => boolean
  ): Holder | undefined {
    let best: Holder | undefined
    for (const holder of this.holders.values()) {
      if (isCandidate(holder) && (best === undefined || isBetter(holder, best))) best = holder
    }
    return best
  }

  /** The waiting holder that has the least and may have more. Of equal ones, the one that was served longest ago. */
  private next(): Holder | undefined {
    return this.best(
      (a, b) => a.held < b.held || (a.held === b.held && a.servedAt < b.servedAt),
      ({ held, waiting: [first] }) => first !== undefined && held + first.size <= this.maxOfOne
    )
  }

  /**
   * Grants waiting requests in order: none overtakes the next one, whatever its size. Call this when something can be
   * reclaimed that could not be reclaimed before.
   */
  serve(): void {
    if (this.isServing || this.waitingCount === 0) return
    this.isServing = true
    for (let holder = this.next(); holder !== undefined; holder = this.next()) {
      const [first] = holder.waiting
      if (first === undefined || !this.makeRoom(holder.name, first.size)) break
      // The waiting request itself may have been reclaimed.
      if (first.state !== "waiting") continue
      holder.waiting.shift()
      this.waitingCount--
      this.grant(holder, first)
    }
    this.isServing = false
  }

  /** Refuses the newest request of the longest queue. */
  private shorten(): void {
    const longest = this.best(
      (a, b) => a.waiting.length > b.waiting.length,
      () => true
    )
    const claim = longest?.waiting.pop()
    if (longest === undefined || claim === undefined) return
    this.waitingCount--
    claim.state = "over"
    this.forget(longest)
    claim.onDecided(false)
  }
}

/** A pool of which one tenant may have three quarters, so that others find some free. */
export const sharedPool = (name: string, capacity: number, maxWaiting = 10_000): FairPool =>
  new FairPool({ name, capacity, maxOfOne: Math.ceil(0.75 * capacity), maxWaiting })
