/**
 * A bounded resource that tenants share max-min fairly.
 *
 * Where there is enough everybody gets what they ask for, one tenant all of it. A pool that is full takes back from
 * its largest holder, as far as something can be taken back, and gives what is returned to whoever waits and has the
 * least. A request is refused where only those who have less could make room for it.
 */
import { Deferred, type Duration, Effect, FiberId } from "effect"
import { SessionsBusy } from "./Sessions.ts"

export interface Options {
  /** What is shared, for messages. */
  readonly name: string
  /** In units of whatever is shared: bytes, calls, connections. */
  readonly capacity: number
  /** What one holder may have, for what cannot be taken back; all of it where absent. */
  readonly mostOfOne?: number
  /** Requests that may wait, of all holders; 10,000 where absent. Beyond, the longest queue loses its newest one. */
  readonly mostWaiting?: number
  /** Has something of a holder's released at once, and tells whether there was anything. It must not throw. */
  readonly takeBack?: (holder: string) => boolean
}

/** A part of a pool that somebody has, or waits for. */
export interface Claim {
  readonly holder: string
  readonly size: number
  readonly isHeld: boolean
  /** Makes a claim that is held smaller, or larger where the pool allows; tells whether it has the size now. */
  readonly resize: (size: number) => boolean
  /** Gives it back, or waits for it no more. Again is as good as once. */
  readonly release: () => void
  /** Passes what is held on to a claim that the end of `use` does not release. */
  readonly detach: () => Claim
}

interface Holder {
  readonly name: string
  held: number
  readonly waiting: Array<Place>
  /** When it was last given something, as a number that grows. */
  servedAt: number
}

const nobody = (): void => {}

class Place implements Claim {
  state: "waiting" | "held" | "over" = "waiting"

  constructor(
    private readonly pool: FairPool,
    readonly holder: string,
    public size: number,
    readonly onDecided: (isGranted: boolean) => void
  ) {}

  get isHeld(): boolean {
    return this.state === "held"
  }

  resize(size: number): boolean {
    return this.pool.resize(this, size)
  }

  release(): void {
    this.pool.release(this)
  }

  detach(): Claim {
    const next = new Place(this.pool, this.holder, this.size, nobody)
    next.state = this.state
    this.state = "over"
    return next
  }
}

/** See the top of the file. All but `use` is synchronous. */
export class FairPool {
  private readonly holders = new Map<string, Holder>()
  private readonly mostOfOne: number
  private readonly mostWaiting: number
  private usedSize = 0
  private waitingCount = 0
  private turn = 0
  private isServing = false

  constructor(private readonly options: Options) {
    this.mostOfOne = Math.min(options.mostOfOne ?? options.capacity, options.capacity)
    this.mostWaiting = options.mostWaiting ?? 10_000
  }

  /** What is held in all; never more than the capacity. */
  get used(): number {
    return this.usedSize
  }

  /** Requests that wait. */
  get waiting(): number {
    return this.waitingCount
  }

  /** What a holder has. */
  heldBy(holder: string): number {
    return this.holders.get(holder)?.held ?? 0
  }

  /** Whether a holder may have so much more, provided that there is room. */
  mayHave(holder: string, size: number): boolean {
    return this.heldBy(holder) + size <= this.mostOfOne
  }

  /** Those who have something, the largest first. */
  largestFirst(): ReadonlyArray<string> {
    return [...this.holders.values()]
      .filter(({ held }) => held > 0)
      .sort((a, b) => b.held - a.held)
      .map(({ name }) => name)
  }

  /** Takes at once, or not at all. */
  take(holder: string, size: number): Claim | undefined {
    const place = new Place(this, holder, size, nobody)
    const isGranted = this.makeRoom(holder, size)
    if (isGranted) this.grant(this.holderOf(holder), place)
    // More may have been taken back than was needed.
    this.serve()
    return isGranted ? place : undefined
  }

  /** Takes as soon as it is the holder's turn. `onDecided` is not called where it is held or refused on return. */
  request(holder: string, size: number, onDecided: (isGranted: boolean) => void): Claim {
    let isReturned = false
    const place = new Place(this, holder, size, isGranted => {
      if (isReturned) onDecided(isGranted)
    })
    if (size > this.mostOfOne) place.state = "over"
    else {
      this.holderOf(holder).waiting.push(place)
      this.waitingCount++
      this.serve()
      if (this.waitingCount > this.mostWaiting) this.shorten()
    }
    isReturned = true
    return place
  }

  /**
   * Holds a part while an effect runs. It fails with `SessionsBusy` where the pool refuses it, or where its turn has
   * not come within `patience`.
   */
  use<A, E, R>(
    holder: string,
    size: number,
    f: (claim: Claim) => Effect.Effect<A, E, R>,
    patience?: Duration.DurationInput
  ): Effect.Effect<A, E | SessionsBusy, R> {
    return Effect.uninterruptibleMask(restore => {
      const decided = Deferred.unsafeMake<void, SessionsBusy>(FiberId.none)
      const claim = this.request(holder, size, isGranted =>
        Deferred.unsafeDone(decided, isGranted ? Effect.void : Effect.fail(this.refusal()))
      )
      if (!claim.isHeld && !this.isWaiting(claim)) return Effect.fail(this.refusal())
      const held = claim.isHeld
        ? Effect.void
        : patience === undefined
          ? Deferred.await(decided)
          : Effect.timeoutFail(Deferred.await(decided), { duration: patience, onTimeout: () => this.refusal() })
      return Effect.ensuring(
        restore(Effect.flatMap(held, () => f(claim))),
        Effect.sync(() => claim.release())
      )
    })
  }

  /** What somebody is told who gets nothing. */
  refusal(): SessionsBusy {
    return new SessionsBusy({ message: `The gateway has no more ${this.options.name} for this tenant at present` })
  }

  /** @internal */
  resize(place: Place, size: number): boolean {
    if (place.state !== "held") return false
    const growth = size - place.size
    if (growth > 0 && !this.makeRoom(place.holder, growth)) return false
    // To make room may have taken this very claim back.
    if (!place.isHeld) return false
    place.size = size
    this.holderOf(place.holder).held += growth
    this.usedSize += growth
    if (growth < 0) this.serve()
    return true
  }

  /** @internal */
  release(place: Place): void {
    const { state } = place
    if (state === "over") return
    place.state = "over"
    const holder = this.holderOf(place.holder)
    if (state === "waiting") {
      holder.waiting.splice(holder.waiting.indexOf(place), 1)
      this.waitingCount--
    } else {
      holder.held -= place.size
      this.usedSize -= place.size
    }
    this.forget(holder)
    this.serve()
  }

  private isWaiting(claim: Claim): boolean {
    return claim instanceof Place && claim.state === "waiting"
  }

  private holderOf(name: string): Holder {
    const known = this.holders.get(name)
    if (known !== undefined) return known
    const holder: Holder = { name, held: 0, waiting: [], servedAt: 0 }
    this.holders.set(name, holder)
    return holder
  }

  private forget(holder: Holder): void {
    if (holder.held === 0 && holder.waiting.length === 0) this.holders.delete(holder.name)
  }

  private grant(holder: Holder, place: Place): void {
    holder.held += place.size
    holder.servedAt = ++this.turn
    this.usedSize += place.size
    place.state = "held"
    place.onDecided(true)
  }

  /** Whether there is room for so much more of a holder's, which is taken from larger ones if need be. */
  private makeRoom(name: string, size: number): boolean {
    const { capacity, takeBack } = this.options
    if (!this.mayHave(name, size)) return false
    const wanted = this.heldBy(name) + size
    const spent = new Set<Holder>()
    while (this.usedSize + size > capacity) {
      const largest = this.largest(holder => !spent.has(holder) && holder.name !== name && holder.held > wanted)
      if (largest === undefined || takeBack === undefined) return false
      const before = this.usedSize
      const wasServing = this.isServing
      // What is taken back is for whoever it was taken for.
      this.isServing = true
      const isTaken = takeBack(largest.name)
      this.isServing = wasServing
      if (!isTaken || this.usedSize >= before) spent.add(largest)
    }
    return true
  }

  private largest(isMeant: (holder: Holder) => boolean): Holder | undefined {
    let largest: Holder | undefined
    for (const holder of this.holders.values()) {
      if (isMeant(holder) && (largest === undefined || holder.held > largest.held)) largest = holder
    }
    return largest
  }

  /** Of those who wait and may have more, the one who has the least, and of several the one served longest ago. */
  private next(): Holder | undefined {
    let next: Holder | undefined
    for (const holder of this.holders.values()) {
      const [first] = holder.waiting
      if (first === undefined || holder.held + first.size > this.mostOfOne) continue
      if (
        next === undefined ||
        holder.held < next.held ||
        (holder.held === next.held && holder.servedAt < next.servedAt)
      ) {
        next = holder
      }
    }
    return next
  }

  /**
   * Gives to those who wait what there is. One who has the least is waited for, however much it asks for. To be called
   * where something can be taken back that could not before.
   */
  serve(): void {
    if (this.isServing || this.waitingCount === 0) return
    this.isServing = true
    for (let holder = this.next(); holder !== undefined; holder = this.next()) {
      const [first] = holder.waiting
      if (first === undefined || !this.makeRoom(holder.name, first.size)) break
      // What was taken back may have been what waited.
      if (first.state !== "waiting") continue
      holder.waiting.shift()
      this.waitingCount--
      this.grant(holder, first)
    }
    this.isServing = false
  }

  /** Refuses the newest request of the longest queue. */
  private shorten(): void {
    let longest: Holder | undefined
    for (const holder of this.holders.values()) {
      if (longest === undefined || holder.waiting.length > longest.waiting.length) longest = holder
    }
    const place = longest?.waiting.pop()
    if (longest === undefined || place === undefined) return
    this.waitingCount--
    place.state = "over"
    this.forget(longest)
    place.onDecided(false)
  }
}
