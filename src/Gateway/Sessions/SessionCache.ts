/**
 * The sessions in memory, within a capacity that tenants share. They are loaded from the store on request, and one that
 * is not used can be evicted for another.
 */
import { Duration, Effect, Option } from "effect"
import type { ParseError } from "effect/ParseResult"
import { SingleFlight } from "../../base/SingleFlight.ts"
import * as Supervision from "../../base/Supervision.ts"
import { type StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import { type Claim, FairPool } from "../FairPool.ts"
import { type History, type Opened, SessionElsewhere } from "../SessionEvents.ts"
import type { SessionNodesShape } from "../SessionNodes.ts"
import { type Caller, type LookupError, SessionNotFound, SessionsBusy } from "../Sessions.ts"
import { Entity } from "./Entity.ts"
import { storedParts } from "./Instance/LaunchConfiguration.ts"
import { openHistory, type Shared, stateOf } from "./Session/SessionCore.ts"
import type { SessionRecords } from "./Session/SessionRecords.ts"
import { isSessionId, keyOf, type SessionRecord } from "./Session/SessionRecords.ts"
import * as State from "./Session/SessionState.ts"

/** How long a load waits for an idle session to be stopped and evicted. */
const stopTimeout = Duration.seconds(5)

/** The state of a session that was not in memory. None of its instances can be running. */
const storedState = (record: SessionRecord, history: History): State.SessionState => {
  const state = stateOf(history, history.headSeq >= record.headSeq ? record.state : undefined)
  // If the recovery state was lost with the history, the record still has the instance.
  if (history.recoveryState !== null || record.instanceId === null || record.state === "inactive") return state
  return { ...state, instance: { key: record.instanceId, instanceId: record.instanceId } }
}

/** Replaces the record of a deleted session. It has what the session's instance was created with. */
const deletedRecord = (tenant: string, id: string, epoch: string, agentType: string): SessionRecord => ({
  ...{ id, tenant, epoch, agentType, title: "", titled: true, state: "inactive", instanceId: null },
  ...{ createdAt: 0, updatedAt: 0, headSeq: 0, secretNames: [], configured: [] }
})

const logLostCreation = (session: string, idempotencyKey: string): Effect.Effect<void> =>
  Effect.logError("Only the key of a creation is known; its instance may be left running").pipe(
    Effect.annotateLogs({ session, idempotencyKey })
  )

/** Sessions in memory, by `<tenant>/<id>`. Each occupies a slot of its tenant. */
export class SessionCache {
  private readonly entities = new Map<string, Entity>()
  private readonly claims = new Map<Entity, Claim>()
  private readonly occupancy = new Supervision.Occupancy()
  /** Waits until a session is in memory. */
  readonly occupied = this.occupancy.occupied
  private readonly capacity: number
  private readonly pool: FairPool
  private readonly loading: SingleFlight<string, Entity, LookupError>

  constructor(
    private readonly shared: Shared,
    private readonly records: Pick<SessionRecords, "find" | "flush" | "save">,
    private readonly nodes: Pick<SessionNodesShape, "hasLost">,
    /** Lets other nodes open a session. It takes effect before later requests for the session. */
    private readonly release: (key: string) => void
  ) {
    this.capacity = shared.settings.inMemory
    // A session in use cannot be evicted.
    const maxOfOne = Math.ceil(this.capacity * 0.875)
    this.pool = new FairPool({ name: "sessions in memory", capacity: this.capacity, maxOfOne })
    this.loading = new SingleFlight(shared.scope)
  }

  /** The session, if it is in memory. */
  peek(key: string): Entity | undefined {
    return this.entities.get(key)
  }

  all(): Iterable<Entity> {
    return this.entities.values()
  }

  get(tenant: string, id: string): Effect.Effect<Entity, LookupError> {
    return Effect.suspend((): Effect.Effect<Entity, LookupError> => {
      // Other texts may not be valid keys of the store.
      if (!isSessionId(id)) return new SessionNotFound({ sessionId: id })
      const key = keyOf(tenant, id)
      const known = this.entities.get(key)
      const found =
        known === undefined ? this.loading.run(key, this.load(key, tenant, id)) : Effect.as(this.own(known), known)
      // It may have been evicted again before this fiber runs.
      return Effect.flatMap(found, entity => {
        if (this.entities.get(key) !== entity) return this.get(tenant, id)
        return entity.isDeleted ? new SessionNotFound({ sessionId: id }) : Effect.succeed(entity)
      })
    })
  }

  /** Finds a session, which counts as used while `f` runs. */
  use<A, E, R>(
    { tenant }: Pick<Caller, "tenant">,
    id: string,
    f: (entity: Entity) => Effect.Effect<A, E, R>
  ): Effect.Effect<A, E | LookupError, R> {
    return Effect.flatMap(this.get(tenant, id), entity =>
      Effect.catchAll(entity.use(f(entity)), (error): Effect.Effect<A, E | LookupError, R> => {
        if (!(error instanceof StoreUnavailable && entity.journal.isLost())) return Effect.fail(error)
        // A call writes to the history before it sends anything to the instance.
        return Effect.zipRight(
          this.replace(entity, error),
          Effect.flatMap(this.get(tenant, id), entity => entity.use(f(entity)))
        )
      })
    )
  }

  /** Loads a deleted session that has instances to stop. `get` does not find it. */
  loadDeleted(
    tenant: string,
    id: string,
    recoveryState: string
  ): Effect.Effect<void, ParseError | SessionElsewhere | SessionsBusy | StoreBusy | StoreUnavailable> {
    return Effect.gen(this, function* () {
      const { shared } = this
      const key = keyOf(tenant, id)
      const found = yield* shared.events.find(key)
      if (Option.isNone(found)) return
      const history = yield* shared.events.open(key, found.value.epoch)
      const state = yield* State.decodeRecovery("inactive", recoveryState)
      const { pendingStops, request } = State.releaseInstance(state)
      const lost = request === undefined ? pendingStops.filter(({ instanceId }) => instanceId === null) : []
      yield* Effect.forEach(lost, ({ key: idempotencyKey }) => logLostCreation(key, idempotencyKey))
      const record = deletedRecord(tenant, id, history.epoch, request?.agentType ?? "")
      const load = Effect.gen(function* () {
        const entity = new Entity(shared, record, history, state)
        entity.completeDeletion()
        yield* entity.setState(state =>
          lost.reduce((left, { key }) => State.removeInstance(left, key), State.recover(state).state)
        )
        return entity
      })
      yield* this.insert(tenant, load)
    })
  }

  /** Removes a session from memory, and releases it for other nodes. */
  evict(entity: Entity): void {
    if (this.entities.get(entity.key) === entity) this.entities.delete(entity.key)
    this.occupancy.set(this.entities.size > 0)
    this.claims.get(entity)?.release()
    if (this.claims.delete(entity)) this.release(entity.key)
  }

  private load(key: string, tenant: string, id: string): Effect.Effect<Entity, LookupError> {
    const load = Effect.gen(this, function* () {
      const found = yield* this.records.find(tenant, id)
      if (Option.isNone(found)) return yield* new SessionNotFound({ sessionId: id })
      const record = found.value
      return yield* this.opened(key, record, yield* openHistory(this.shared, key, record))
    })
    return this.insert(tenant, load)
  }

  private opened(key: string, record: SessionRecord, history: Opened) {
    return Effect.gen(this, function* () {
      const parts = storedParts(yield* this.shared.events.configuration(key))
      const entity = new Entity(this.shared, record, history, storedState(record, history), parts)
      const { events } = yield* entity.journal.update(State.recover)
      if (events.length > 0 || history.epoch !== record.epoch) this.records.save(entity)
      return entity
    }).pipe(Effect.onError(() => Effect.sync(() => this.release(key))))
  }

  /** Evicts a session that another node has taken. */
  private own(entity: Entity): Effect.Effect<void> {
    return Effect.map(this.nodes.hasLost(entity.key), isLost => {
      if (isLost && !entity.isDeleted) entity.giveUp()
      if (entity.isGivenUp) this.evict(entity)
    })
  }

  /** Called after a call failed because the history is lost. If this succeeds, the call may be repeated. */
  private replace(entity: Entity, error: StoreUnavailable): Effect.Effect<void, SessionElsewhere | StoreUnavailable> {
    return Effect.flatMap(
      entity.lifecycle.replaceLost(),
      (): Effect.Effect<void, SessionElsewhere | StoreUnavailable> => {
        if (entity.isGivenUp) return new SessionElsewhere({ session: entity.key })
        return entity.journal.isLost() ? Effect.fail(error) : Effect.void
      }
    )
  }

  /** Loads a session once there is room for it. */
  private insert<E, R>(tenant: string, load: Effect.Effect<Entity, E, R>): Effect.Effect<Entity, E | SessionsBusy, R> {
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
  private claim(
    tenant: string,
    restore: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
  ): Effect.Effect<Claim, SessionsBusy> {
    return Effect.gen(this, function* () {
      const { flush } = this.records
      // Sessions with nothing but a dirty record can be evicted after it is saved.
      for (const makeRoom of [Effect.void, flush, Effect.zipRight(this.stopIdle(tenant), flush)]) {
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
