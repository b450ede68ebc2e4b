/**
 * Sessions from the store into memory, once for all who ask at the same time.
 */
import { Deferred, Duration, Effect, Either, FiberId, Option } from "effect"
import type { ParseError } from "effect/ParseResult"
import type { StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import * as Supervision from "../../Supervision.ts"
import { type Claim, FairPool } from "../FairPool.ts"
import type { History } from "../SessionEvents.ts"
import { type LookupError, SessionNotFound, SessionsBusy } from "../Sessions.ts"
import { Entity, type Shared } from "./Entity.ts"
import * as Ids from "./Ids.ts"
import * as Journal from "./Journal.ts"
import { partsOf } from "./LaunchConfiguration.ts"
import type { Vault } from "./Secrets.ts"
import type { SessionRecord } from "./SessionRecord.ts"
import type { Records } from "./SessionRecords.ts"
import * as State from "./SessionState.ts"

/** Sessions in memory, by `<tenant>/<id>`. */
export interface Loaded {
  readonly get: (tenant: string, id: string) => Effect.Effect<Entity, LookupError>
  /** Takes what a deleted session still owes into care; nobody finds the session. */
  readonly adopt: (
    tenant: string,
    id: string,
    bookmark: string
  ) => Effect.Effect<void, ParseError | SessionsBusy | StoreBusy | StoreUnavailable>
  /** The session, if it is in memory. */
  readonly peek: (tenant: string, id: string) => Entity | undefined
  readonly all: () => Iterable<Entity>
  readonly forget: (entity: Entity) => void
  /** Whether the secrets of a session, by `<tenant>/<id>`, are about to be used. */
  readonly needsSecrets: (key: string) => boolean
  /** Has a session, by `<tenant>/<id>`, miss its secrets. */
  readonly loseSecrets: (key: string) => void
}

export const keyOf = (tenant: string, id: string): string => `${tenant}/${id}`

/** The history of a session; another life of it begins where the record tells of more than is there. */
const openHistory = (shared: Shared, key: string, { epoch, headSeq }: SessionRecord) =>
  Effect.gen(function* () {
    const history = yield* shared.events.open(key, epoch)
    if (history.headSeq >= headSeq) return history
    yield* Effect.logWarning("The history of a session was lost, at least its end; it begins anew").pipe(
      Effect.annotateLogs({ session: key, recorded: headSeq, found: history.headSeq })
    )
    return yield* shared.events.restart(key, yield* Ids.unique)
  })

/** The state of a session that was not in memory: nothing of it can be running. */
const stateOf = (record: SessionRecord, { bookmark }: History): State.SessionState => {
  const state = Either.getOrElse(State.decodeRecoveryState(record.state, bookmark), () => ({
    ...State.initial,
    lifecycle: record.state
  }))
  // Where the bookmark was lost along with its history, the record still knows the instance.
  if (bookmark !== null || record.instanceId === null || record.state === "inactive") return state
  return { ...state, instance: { key: record.instanceId, instanceId: record.instanceId } }
}

const journalOf = (entity: Entity, history: History, state: State.SessionState): Effect.Effect<Journal.Journal> =>
  Journal.make({
    session: entity.key,
    sessionId: entity.record.id,
    events: entity.shared.events,
    traceId: entity.shared.traceId,
    history,
    state,
    onUpdate: (update, frames) => entity.onUpdate(update, frames)
  })

/** A journal for a session whose history was lost: nothing runs, and all that it owed it owes on. */
export const anotherJournal = (entity: Entity) =>
  Effect.gen(function* () {
    const history = yield* openHistory(entity.shared, entity.key, entity.toRecord())
    entity.kept = partsOf(yield* entity.shared.events.configuration(entity.key))
    entity.edition++
    const found = State.releaseInstance(
      Either.getOrElse(State.decodeRecoveryState("inactive", history.bookmark), () => State.initial)
    )
    const { pendingStops, request } = State.releaseInstance(entity.journal.state())
    const known = new Set(pendingStops.map(({ key }) => key))
    const journal = yield* journalOf(entity, history, {
      ...found,
      pendingStops: [...pendingStops, ...found.pendingStops.filter(({ key }) => !known.has(key))],
      ...(request === undefined ? {} : { request })
    })
    return { epoch: history.epoch, journal }
  })

/** The record of a session that was deleted, as far as its instance is asked for with it. */
const recordOf = (tenant: string, id: string, epoch: string, agentType: string): SessionRecord => ({
  id,
  tenant,
  epoch,
  agentType,
  title: "",
  titled: true,
  state: "inactive",
  instanceId: null,
  createdAt: 0,
  updatedAt: 0,
  headSeq: 0,
  secretNames: [],
  configured: []
})

/** How long another session's place is waited for whose instance has to be stopped first. */
const stopLimit = Duration.seconds(5)

/**
 * Keeps sessions in memory, within the bound that tenants share.
 *
 * @param stop stops a session's instance, to give its place to another tenant's
 */
export const make = (
  shared: Shared,
  records: Records,
  secrets: Vault,
  stop: (entity: Entity) => Effect.Effect<void>
): Loaded => {
  const entities = new Map<string, Entity>()
  const loading = new Map<string, Deferred.Deferred<Entity, LookupError>>()

  const { inMemory } = shared.settings
  const places = new Map<Entity, Claim>()

  const drop = (entity: Entity): void => {
    if (entities.get(entity.key) === entity) entities.delete(entity.key)
    places.get(entity)?.release()
    places.delete(entity)
  }

  /** Those who follow it have to come again, and are told what their tenant is told then. */
  const sendAway = (entity: Entity): void => {
    const followers = [...entity.subscribers]
    entity.subscribers.clear()
    drop(entity)
    for (const subscriber of followers) subscriber.onLost()
  }

  const pool = new FairPool({
    name: "sessions in memory",
    capacity: inMemory,
    // What is in the midst of its work cannot be taken back.
    mostOfOne: Math.ceil(inMemory * 0.875),
    takeBack: tenant => {
      for (const entity of entities.values()) {
        if (entity.record.tenant !== tenant || !entity.isAtRest()) continue
        sendAway(entity)
        return true
      }
      return false
    }
  })

  /** Forgets a session that nobody uses, if one must go; of those of the tenant that has the most. */
  const forgetSpare = (tenant: string): void => {
    const isFull = pool.used >= inMemory
    if (!isFull && pool.mayHave(tenant, 1)) return
    let spare: Entity | undefined
    for (const entity of entities.values()) {
      if (!entity.isSpare() || !(isFull || entity.record.tenant === tenant)) continue
      if (spare === undefined || pool.heldBy(entity.record.tenant) > pool.heldBy(spare.record.tenant)) spare = entity
    }
    if (spare !== undefined) drop(spare)
  }

  const take = (tenant: string): Claim | undefined => {
    forgetSpare(tenant)
    return pool.take(tenant, 1)
  }

  /** Stops an instance of the largest tenant that nobody has any use of, so that its session can go. */
  const stopIdle = (tenant: string): Effect.Effect<void> =>
    Effect.suspend(() => {
      const [largest] = pool.largestFirst()
      if (largest === undefined || pool.heldBy(largest) <= pool.heldBy(tenant) + 1) return Effect.void
      for (const entity of entities.values()) {
        if (entity.record.tenant !== largest || !entity.isIdleSince(Number.POSITIVE_INFINITY)) continue
        return Effect.asVoid(Supervision.within(stopLimit, stop(entity)))
      }
      return Effect.void
    })

  /** A place for a session of a tenant. */
  const place = (tenant: string): Effect.Effect<Claim, SessionsBusy> =>
    Effect.gen(function* () {
      const atOnce = take(tenant)
      if (atOnce !== undefined) return atOnce
      // What has only its record still to be written can go once that is done.
      yield* records.flush
      const flushed = take(tenant)
      if (flushed !== undefined) return flushed
      yield* stopIdle(tenant)
      yield* records.flush
      const stopped = take(tenant)
      if (stopped !== undefined) return stopped
      return yield* new SessionsBusy({ message: `${entities.size} sessions are in use; the limit is ${inMemory}` })
    })

  /** Brings a session into memory, where there is room or can be made. */
  const inItsPlace = <E, R>(tenant: string, bring: Effect.Effect<Entity, E, R>) =>
    Effect.uninterruptibleMask(restore =>
      Effect.flatMap(place(tenant), claim =>
        restore(bring).pipe(
          Effect.tap(entity => {
            places.set(entity, claim)
            entities.set(entity.key, entity)
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
      const entity = new Entity(key, { ...record, epoch: history.epoch }, shared)
      entity.secrets = secrets.get(key)
      entity.kept = partsOf(yield* shared.events.configuration(key))
      const state = stateOf(record, history)
      entity.journal = yield* journalOf(entity, history, state)
      const { events } = yield* entity.journal.update(State.recover)
      if (events.length > 0 || history.epoch !== record.epoch) shared.save(entity)
      return entity
    }).pipe(bring => inItsPlace(tenant, bring))

  /** Begins to load a session; from then on whoever asks for it waits for this load. */
  const beginLoad = (key: string, tenant: string, id: string): Effect.Effect<Deferred.Deferred<Entity, LookupError>> =>
    Effect.suspend(() => {
      const done = Deferred.unsafeMake<Entity, LookupError>(FiberId.none)
      loading.set(key, done)
      const work = Effect.onExit(Effect.interruptible(load(key, tenant, id)), exit =>
        Effect.suspend(() => {
          loading.delete(key)
          return Deferred.done(done, exit)
        })
      )
      return Effect.as(Effect.forkIn(work, shared.scope), done)
      // Interrupted half-way, or before it has begun, it would leave everybody waiting for ever.
    }).pipe(Effect.uninterruptible)

  const adopt: Loaded["adopt"] = (tenant, id, bookmark) =>
    Effect.gen(function* () {
      const key = keyOf(tenant, id)
      const found = yield* shared.events.find(key)
      if (Option.isNone(found)) return
      const state = yield* State.decodeRecoveryState("inactive", bookmark)
      const { pendingStops, request } = State.releaseInstance(state)
      const lost = request === undefined ? pendingStops.filter(({ instanceId }) => instanceId === null) : []
      for (const { key: idempotencyKey } of lost) {
        yield* Effect.logError("Nothing is known of a creation but its key; its instance may be left behind").pipe(
          Effect.annotateLogs({ session: key, idempotencyKey })
        )
      }
      const bring = Effect.gen(function* () {
        const entity = new Entity(key, recordOf(tenant, id, found.value.epoch, request?.agentType ?? ""), shared)
        entity.request = request
        entity.isDeleted = true
        entity.journal = yield* journalOf(entity, found.value, state)
        yield* entity.journal.update(state => {
          const { state: owing } = State.recover(state)
          return State.silently(lost.reduce((left, { key }) => State.removeInstance(left, key), owing))
        })
        return entity
      })
      yield* inItsPlace(tenant, bring)
    })

  const get: Loaded["get"] = (tenant, id) =>
    Effect.suspend((): Effect.Effect<Entity, LookupError> => {
      // What is no id of ours is no name in the store either.
      if (!Ids.isSession(id)) return Effect.fail(new SessionNotFound({ sessionId: id }))
      const key = keyOf(tenant, id)
      const known = entities.get(key)
      if (known !== undefined) {
        return known.isDeleted ? Effect.fail(new SessionNotFound({ sessionId: id })) : Effect.succeed(known)
      }
      const underway = loading.get(key)
      const loaded =
        underway === undefined ? Effect.flatMap(beginLoad(key, tenant, id), Deferred.await) : Deferred.await(underway)
      // Another tenant's may have taken its place before whoever waits for it has had their turn.
      return Effect.flatMap(loaded, entity => (entities.get(key) === entity ? Effect.succeed(entity) : get(tenant, id)))
    })

  return {
    adopt,
    get,
    peek: (tenant, id) => entities.get(keyOf(tenant, id)),
    all: () => entities.values(),
    forget: drop,
    needsSecrets: key => entities.get(key)?.errand?.kind === "activation",
    loseSecrets: key => {
      const entity = entities.get(key)
      if (entity === undefined) return
      entity.secrets = {}
      entity.posted = undefined
    }
  }
}
