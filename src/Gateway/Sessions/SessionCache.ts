/**
 * The sessions in memory. They are loaded from the store on request, within a capacity that tenants share.
 */
import { Duration, Effect, Either, Option } from "effect"
import type { ParseError } from "effect/ParseResult"
import type { StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import { SingleFlight } from "../../SingleFlight.ts"
import * as Supervision from "../../Supervision.ts"
import { type Claim, FairPool } from "../FairPool.ts"
import type { History, SessionElsewhere } from "../SessionEvents.ts"
import { type LookupError, SessionNotFound, SessionsBusy } from "../Sessions.ts"
import { Entity } from "./Entity.ts"
import { storedParts } from "./LaunchConfiguration.ts"
import * as RecoveryState from "./RecoveryState.ts"
import { openHistory, type Shared } from "./SessionCore.ts"
import { isSessionId, keyOf, type SessionRecord } from "./SessionRecord.ts"
import type { SessionRecords } from "./SessionRecords.ts"
import * as State from "./SessionState.ts"

/** Sessions in memory, by `<tenant>/<id>`. */
export interface SessionCache {
  readonly get: (tenant: string, id: string) => Effect.Effect<Entity, LookupError>
  /** Loads a deleted session that has instances to stop. `get` does not find it. */
  readonly loadDeleted: (
    tenant: string,
    id: string,
    recoveryState: string
  ) => Effect.Effect<void, ParseError | SessionElsewhere | SessionsBusy | StoreBusy | StoreUnavailable>
  /** The session, if it is in memory. */
  readonly peek: (key: string) => Entity | undefined
  readonly all: () => Iterable<Entity>
  /** Waits until a session is in memory. */
  readonly occupied: Effect.Effect<void>
  /** Removes it from memory, and releases it for other nodes. */
  readonly evict: (entity: Entity) => void
}

/** The state of a session that was not in memory. None of its instances can be running. */
const storedState = (record: SessionRecord, { recoveryState }: History): State.SessionState => {
  const state = Either.getOrElse(RecoveryState.decode(record.state, recoveryState), () => ({
    ...State.initial,
    lifecycle: record.state
  }))
  // If the recovery state was lost with the history, the record still has the instance.
  if (recoveryState !== null || record.instanceId === null || record.state === "inactive") return state
  return { ...state, instance: { key: record.instanceId, instanceId: record.instanceId } }
}

/** Replaces the record of a deleted session. It has what the session's instance was created with. */
const deletedRecord = (tenant: string, id: string, epoch: string, agentType: string): SessionRecord => ({
  ...{ id, tenant, epoch, agentType, title: "", titled: true, state: "inactive", instanceId: null },
  ...{ createdAt: 0, updatedAt: 0, headSeq: 0, secretNames: [], configured: [] }
})

type Restore = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>

/** How long a load waits for an idle session to be stopped and evicted. */
const stopTimeout = Duration.seconds(5)

/** `release` lets other nodes open a session. It takes effect before later requests for the session. */
export const make = (shared: Shared, records: SessionRecords, release: (key: string) => void): SessionCache => {
  const entities = new Map<string, Entity>()
  const occupancy = new Supervision.Occupancy()
  const loading = new SingleFlight<string, Entity, LookupError>(shared.scope)
  const claims = new Map<Entity, Claim>()
  const { inMemory } = shared.settings

  const evict = (entity: Entity): void => {
    if (entities.get(entity.key) === entity) entities.delete(entity.key)
    occupancy.set(entities.size > 0)
    claims.get(entity)?.release()
    if (claims.delete(entity)) release(entity.key)
  }

  const pool = new FairPool({
    name: "sessions in memory",
    capacity: inMemory,
    // A session in use cannot be evicted.
    maxOfOne: Math.ceil(inMemory * 0.875)
  })

  /** Evicts an unused session of the tenant that has the most, if a slot is needed. */
  const evictUnused = (tenant: string): void => {
    const isFull = pool.used >= inMemory
    if (!isFull && pool.mayHave(tenant, 1)) return
    let unused: Entity | undefined
    for (const entity of entities.values()) {
      if (!entity.isEvictable || !(isFull || entity.record.tenant === tenant)) continue
      if (unused === undefined || pool.heldBy(entity.record.tenant) > pool.heldBy(unused.record.tenant)) unused = entity
    }
    if (unused !== undefined) evict(unused)
  }

  const take = (tenant: string): Claim | undefined => {
    evictUnused(tenant)
    return pool.take(tenant, 1)
  }

  /** Stops an idle session of the tenant that has the most, so that it can be evicted. */
  const stopIdle = (tenant: string): Effect.Effect<void> =>
    Effect.suspend(() => {
      const [largest] = pool.largestFirst()
      if (largest === undefined || pool.heldBy(largest) <= pool.heldBy(tenant) + 1) return Effect.void
      for (const entity of entities.values()) {
        if (entity.record.tenant !== largest || !entity.isIdleSince(Number.POSITIVE_INFINITY)) continue
        const stop = Effect.ignore(entity.lifecycle.stop("another tenant needs its slot"))
        return Effect.asVoid(Supervision.within(stopTimeout, stop))
      }
      return Effect.void
    })

  /** Claims a slot in an uninterruptible region. `restore` allows an interruption while room is made. */
  const claim = (tenant: string, restore: Restore): Effect.Effect<Claim, SessionsBusy> =>
    Effect.gen(function* () {
      // Sessions with nothing but a dirty record can be evicted after it is saved.
      for (const makeRoom of [Effect.void, records.flush, Effect.zipRight(stopIdle(tenant), records.flush)]) {
        yield* restore(makeRoom)
        const claim = take(tenant)
        if (claim !== undefined) return claim
      }
      return yield* new SessionsBusy({ message: `${entities.size} sessions are in use; the limit is ${inMemory}` })
    })

  /** Loads a session once there is room for it. */
  const insert = <E, R>(tenant: string, load: Effect.Effect<Entity, E, R>) =>
    Effect.uninterruptibleMask(restore =>
      Effect.flatMap(claim(tenant, restore), claim =>
        restore(load).pipe(
          Effect.tap(entity => {
            claims.set(entity, claim)
            entities.set(entity.key, entity)
            claim.offer({
              isReclaimable: () => entity.isQuiescent,
              // Subscribers have to subscribe again, and are refused if their tenant has too many sessions.
              onReclaim: () => entity.dropSubscribers(() => evict(entity))
            })
            occupancy.set(true)
          }),
          Effect.onError(() => Effect.sync(() => claim.release()))
        )
      )
    )

  const load = (key: string, tenant: string, id: string): Effect.Effect<Entity, LookupError> =>
    Effect.gen(function* () {
      const found = yield* records.find(tenant, id)
      if (Option.isNone(found)) return yield* new SessionNotFound({ sessionId: id })
      const record = found.value
      const history = yield* openHistory(shared, key, record)
      return yield* opened(key, record, history)
    }).pipe(load => insert(tenant, load))

  const opened = (key: string, record: SessionRecord, history: History) =>
    Effect.gen(function* () {
      const parts = storedParts(yield* shared.events.configuration(key))
      const state = storedState(record, history)
      const entity = new Entity(shared, { key, record, history, state, parts })
      const { events } = yield* entity.journal.update(State.recover)
      if (events.length > 0 || history.epoch !== record.epoch) records.save(entity)
      return entity
    }).pipe(Effect.onError(() => Effect.sync(() => release(key))))

  const loadDeleted: SessionCache["loadDeleted"] = (tenant, id, recoveryState) =>
    Effect.gen(function* () {
      const key = keyOf(tenant, id)
      const found = yield* shared.events.find(key)
      if (Option.isNone(found)) return
      const history = yield* shared.events.open(key, found.value.epoch)
      const state = yield* RecoveryState.decode("inactive", recoveryState)
      const { pendingStops, request } = State.releaseInstance(state)
      const lost = request === undefined ? pendingStops.filter(({ instanceId }) => instanceId === null) : []
      for (const { key: idempotencyKey } of lost) {
        yield* Effect.logError("Only the key of a creation is known; its instance may be left running").pipe(
          Effect.annotateLogs({ session: key, idempotencyKey })
        )
      }
      const record = deletedRecord(tenant, id, history.epoch, request?.agentType ?? "")
      const load = Effect.gen(function* () {
        const entity = new Entity(shared, { key, record, history, state, request })
        entity.completeDeletion()
        yield* entity.setState(state =>
          lost.reduce((left, { key }) => State.removeInstance(left, key), State.recover(state).state)
        )
        return entity
      })
      yield* insert(tenant, load)
    })

  const get: SessionCache["get"] = (tenant, id) =>
    Effect.suspend((): Effect.Effect<Entity, LookupError> => {
      // Other texts may not be valid keys of the store.
      if (!isSessionId(id)) return new SessionNotFound({ sessionId: id })
      const key = keyOf(tenant, id)
      const known = entities.get(key)
      if (known?.isGivenUp) evict(known)
      else if (known !== undefined)
        return known.isDeleted ? new SessionNotFound({ sessionId: id }) : Effect.succeed(known)
      // It may have been evicted again before this fiber runs.
      return Effect.flatMap(loading.run(key, load(key, tenant, id)), entity =>
        entities.get(key) === entity ? Effect.succeed(entity) : get(tenant, id)
      )
    })

  return {
    get,
    loadDeleted,
    peek: key => entities.get(key),
    all: () => entities.values(),
    occupied: occupancy.occupied,
    evict
  }
}
