/**
 * The sessions in memory, within a capacity that tenants share. A session that is not used can be evicted for another.
 */
import { Duration, Effect } from "effect"
import * as Supervision from "../../Supervision.ts"
import { type Claim, FairPool } from "../FairPool.ts"
import { SessionsBusy } from "../Sessions.ts"
import type { Entity } from "./Entity.ts"

type Restore = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>

/** How long a load waits for an idle session to be stopped and evicted. */
const stopTimeout = Duration.seconds(5)

/** Each session in memory occupies a slot of its tenant. */
export class SessionSlots {
  private readonly entities = new Map<string, Entity>()
  private readonly claims = new Map<Entity, Claim>()
  private readonly occupancy = new Supervision.Occupancy()
  private readonly pool: FairPool

  constructor(
    /** Maximum number of sessions. */
    private readonly capacity: number,
    /** Writes dirty records, which prevent evictions. */
    private readonly flush: Effect.Effect<void>,
    /** Called with the key of a session that was evicted. */
    private readonly onEvicted: (key: string) => void
  ) {
    // A session in use cannot be evicted.
    this.pool = new FairPool({ name: "sessions in memory", capacity, maxOfOne: Math.ceil(capacity * 0.875) })
  }

  get(key: string): Entity | undefined {
    return this.entities.get(key)
  }

  all(): Iterable<Entity> {
    return this.entities.values()
  }

  /** Waits until a session is in memory. */
  get occupied(): Effect.Effect<void> {
    return this.occupancy.occupied
  }

  /** Removes a session from memory. */
  evict(entity: Entity): void {
    if (this.entities.get(entity.key) === entity) this.entities.delete(entity.key)
    this.occupancy.set(this.entities.size > 0)
    this.claims.get(entity)?.release()
    if (this.claims.delete(entity)) this.onEvicted(entity.key)
  }

  /** Loads a session once there is room for it. */
  insert<E, R>(tenant: string, load: Effect.Effect<Entity, E, R>): Effect.Effect<Entity, E | SessionsBusy, R> {
    return Effect.uninterruptibleMask(restore =>
      Effect.flatMap(this.claim(tenant, restore), claim =>
        restore(load).pipe(
          Effect.tap(entity => this.occupy(entity, claim)),
          Effect.onError(() => Effect.sync(() => claim.release()))
        )
      )
    )
  }

  private occupy(entity: Entity, claim: Claim): void {
    this.claims.set(entity, claim)
    this.entities.set(entity.key, entity)
    claim.offer({
      isReclaimable: () => entity.isQuiescent,
      // Subscribers have to subscribe again, and are refused if their tenant has too many sessions.
      onReclaim: () => entity.dropSubscribers(() => this.evict(entity))
    })
    this.occupancy.set(true)
  }

  /** Claims a slot in an uninterruptible region. `restore` allows an interruption while room is made. */
  private claim(tenant: string, restore: Restore): Effect.Effect<Claim, SessionsBusy> {
    return Effect.gen(this, function* () {
      // Sessions with nothing but a dirty record can be evicted after it is saved.
      for (const makeRoom of [Effect.void, this.flush, Effect.zipRight(this.stopIdle(tenant), this.flush)]) {
        yield* restore(makeRoom)
        const claim = this.take(tenant)
        if (claim !== undefined) return claim
      }
      const message = `${this.entities.size} sessions are in use; the limit is ${this.capacity}`
      return yield* new SessionsBusy({ message })
    })
  }

  private take(tenant: string): Claim | undefined {
    this.evictUnused(tenant)
    return this.pool.take(tenant, 1)
  }

  /** Evicts an unused session of the tenant that has the most, if a slot is needed. */
  private evictUnused(tenant: string): void {
    const { pool } = this
    const isFull = pool.used >= this.capacity
    if (!isFull && pool.mayHave(tenant, 1)) return
    let unused: Entity | undefined
    for (const entity of this.entities.values()) {
      if (!entity.isEvictable || !(isFull || entity.record.tenant === tenant)) continue
      if (unused === undefined || pool.heldBy(entity.record.tenant) > pool.heldBy(unused.record.tenant)) unused = entity
    }
    if (unused !== undefined) this.evict(unused)
  }

  /** Stops an idle session of the tenant that has the most, so that it can be evicted. */
  private stopIdle(tenant: string): Effect.Effect<void> {
    return Effect.suspend(() => {
      const [largest] = this.pool.largestFirst()
      if (largest === undefined || this.pool.heldBy(largest) <= this.pool.heldBy(tenant) + 1) return Effect.void
      for (const entity of this.entities.values()) {
        if (entity.record.tenant !== largest || !entity.isIdleSince(Number.POSITIVE_INFINITY)) continue
        const stop = Effect.ignore(entity.lifecycle.stop("another tenant needs its slot"))
        return Effect.asVoid(Supervision.within(stopTimeout, stop))
      }
      return Effect.void
    })
  }
}
