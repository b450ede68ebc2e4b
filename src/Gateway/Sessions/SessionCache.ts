/**
 * The sessions in memory, which are loaded from the store on request.
 */
import { Effect, Either, Option } from "effect"
import type { ParseError } from "effect/ParseResult"
import { type StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import { SingleFlight } from "../../SingleFlight.ts"
import { type History, SessionElsewhere } from "../SessionEvents.ts"
import type { SessionNodesShape } from "../SessionNodes.ts"
import { type Caller, type LookupError, SessionNotFound, type SessionsBusy } from "../Sessions.ts"
import { Entity } from "./Entity.ts"
import { storedParts } from "./LaunchConfiguration.ts"
import * as RecoveryState from "./RecoveryState.ts"
import { openHistory, type Shared, unknownLifecycle } from "./SessionCore.ts"
import { isSessionId, keyOf, type SessionRecord } from "./SessionRecord.ts"
import type { SessionRecords } from "./SessionRecords.ts"
import { SessionSlots } from "./SessionSlots.ts"
import * as State from "./SessionState.ts"

/** Sessions in memory, by `<tenant>/<id>`. */
export interface SessionCache {
  readonly get: (tenant: string, id: string) => Effect.Effect<Entity, LookupError>
  /** Finds a session, which counts as used while `f` runs. */
  readonly use: <A, E, R>(
    caller: Pick<Caller, "tenant">,
    id: string,
    f: (entity: Entity) => Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E | LookupError, R>
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
const storedState = (record: SessionRecord, history: History): State.SessionState => {
  const { recoveryState } = history
  const lifecycle = history.headSeq >= record.headSeq ? record.state : unknownLifecycle(history)
  const state = Either.getOrElse(RecoveryState.decode(lifecycle, recoveryState), () => ({
    ...State.initial,
    lifecycle
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

const logLostCreation = (session: string, idempotencyKey: string): Effect.Effect<void> =>
  Effect.logError("Only the key of a creation is known; its instance may be left running").pipe(
    Effect.annotateLogs({ session, idempotencyKey })
  )

/** `release` lets other nodes open a session. It takes effect before later requests for the session. */
export const make = (
  shared: Shared,
  records: SessionRecords,
  nodes: Pick<SessionNodesShape, "hasLost">,
  release: (key: string) => void
): SessionCache => {
  const slots = new SessionSlots(shared.settings.inMemory, records.flush, release)
  const loading = new SingleFlight<string, Entity, LookupError>(shared.scope)

  const load = (key: string, tenant: string, id: string): Effect.Effect<Entity, LookupError> =>
    Effect.gen(function* () {
      const found = yield* records.find(tenant, id)
      if (Option.isNone(found)) return yield* new SessionNotFound({ sessionId: id })
      const record = found.value
      const history = yield* openHistory(shared, key, record)
      return yield* opened(key, record, history)
    }).pipe(load => slots.insert(tenant, load))

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
      yield* Effect.forEach(lost, ({ key: idempotencyKey }) => logLostCreation(key, idempotencyKey))
      const record = deletedRecord(tenant, id, history.epoch, request?.agentType ?? "")
      const load = Effect.gen(function* () {
        const entity = new Entity(shared, { key, record, history, state })
        entity.completeDeletion()
        yield* entity.setState(state =>
          lost.reduce((left, { key }) => State.removeInstance(left, key), State.recover(state).state)
        )
        return entity
      })
      yield* slots.insert(tenant, load)
    })

  const get: SessionCache["get"] = (tenant, id) =>
    Effect.suspend((): Effect.Effect<Entity, LookupError> => {
      // Other texts may not be valid keys of the store.
      if (!isSessionId(id)) return new SessionNotFound({ sessionId: id })
      const key = keyOf(tenant, id)
      const known = slots.get(key)
      const found = known === undefined ? loading.run(key, load(key, tenant, id)) : Effect.as(own(known), known)
      // It may have been evicted again before this fiber runs.
      return Effect.flatMap(found, entity => {
        if (slots.get(key) !== entity) return get(tenant, id)
        return entity.isDeleted ? new SessionNotFound({ sessionId: id }) : Effect.succeed(entity)
      })
    })

  /** Evicts a session that another node has taken. */
  const own = (entity: Entity): Effect.Effect<void> =>
    Effect.map(nodes.hasLost(entity.key), isLost => {
      if (isLost && !entity.isDeleted) entity.giveUp()
      if (entity.isGivenUp) slots.evict(entity)
    })

  /** Called after a call failed because the history is lost. If this succeeds, the call may be repeated. */
  const replace = (entity: Entity, error: StoreUnavailable): Effect.Effect<void, SessionElsewhere | StoreUnavailable> =>
    Effect.flatMap(entity.lifecycle.replaceLost(), (): Effect.Effect<void, SessionElsewhere | StoreUnavailable> => {
      if (entity.isGivenUp) return new SessionElsewhere({ session: entity.key })
      return entity.journal.isLost() ? Effect.fail(error) : Effect.void
    })

  const use: SessionCache["use"] = ({ tenant }, id, f) =>
    Effect.flatMap(get(tenant, id), entity =>
      Effect.catchAll(entity.use(f(entity)), error => {
        if (!(error instanceof StoreUnavailable && entity.journal.isLost())) return Effect.fail(error)
        // A call writes to the history before it sends anything to the instance.
        return Effect.zipRight(
          replace(entity, error),
          Effect.flatMap(get(tenant, id), entity => entity.use(f(entity)))
        )
      })
    )

  return {
    get,
    use,
    loadDeleted,
    peek: key => slots.get(key),
    all: () => slots.all(),
    occupied: slots.occupied,
    evict: entity => slots.evict(entity)
  }
}
