/**
 * Sessions from the store into memory, once for all who ask at the same time.
 */
import { type Context, Deferred, Effect, Either, FiberId, Option } from "effect"
import type { Tracer } from "../../Observability/Tracer.ts"
import * as Session from "../Session.ts"
import type { History } from "../SessionEvents.ts"
import { type LookupError, SessionNotFound, SessionsBusy } from "../Sessions.ts"
import { Entity, type Shared } from "./Entity.ts"
import * as Ids from "./Ids.ts"
import * as Journal from "./Journal.ts"
import type { Records } from "./Records.ts"
import type { Vault } from "./Secrets.ts"
import type { SessionRecord } from "./SessionRecord.ts"

/** Sessions in memory, by `<tenant>/<id>`. */
export interface Loaded {
  readonly get: (tenant: string, id: string) => Effect.Effect<Entity, LookupError>
  /** The session, if it is in memory. */
  readonly peek: (tenant: string, id: string) => Entity | undefined
  readonly all: () => Iterable<Entity>
  readonly forget: (entity: Entity) => void
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
    yield* shared.events.remove(key)
    return yield* shared.events.open(key, yield* Ids.unique)
  })

/** The standing of a session that was not in memory: nothing of it can be running. */
const standingOf = (record: SessionRecord, { bookmark }: History): Session.Standing => {
  const standing = Either.getOrElse(Session.fromBookmark(record.state, bookmark), () => ({
    ...Session.initial,
    state: record.state
  }))
  // Where the bookmark was lost along with its history, the record still knows the instance.
  if (bookmark !== null || record.instanceId === null || record.state === "inactive") return standing
  return { ...standing, lease: { key: record.instanceId, instanceId: record.instanceId } }
}

export const make = (shared: Shared, records: Records, secrets: Vault, tracer: Context.Tag.Service<Tracer>): Loaded => {
  const entities = new Map<string, Entity>()
  const loading = new Map<string, Deferred.Deferred<Entity, LookupError>>()

  const isFull = (): boolean => entities.size + loading.size >= shared.settings.inMemory

  /** Forgets a session that nobody uses, if there must be room for another. */
  const forgetOne = Effect.sync(() => {
    if (!isFull()) return
    for (const [key, entity] of entities) {
      if (!entity.isSpare()) continue
      entities.delete(key)
      return
    }
  })

  const makeRoom = Effect.gen(function* () {
    yield* forgetOne
    if (!isFull()) return
    // What has only its record still to be written can go once that is done.
    yield* records.flush
    yield* forgetOne
    if (!isFull()) return
    const { inMemory } = shared.settings
    return yield* new SessionsBusy({ message: `${entities.size} sessions are in use; the limit is ${inMemory}` })
  })

  const load = (key: string, tenant: string, id: string): Effect.Effect<Entity, LookupError> =>
    Effect.gen(function* () {
      const found = yield* records.find(tenant, id)
      if (Option.isNone(found)) return yield* new SessionNotFound({ sessionId: id })
      const record = found.value
      const history = yield* openHistory(shared, key, record)
      const entity = new Entity(key, { ...record, epoch: history.epoch }, shared)
      entity.secrets = secrets.get(key)
      const standing = standingOf(record, history)
      entity.journal = yield* Journal.make({
        session: key,
        sessionId: id,
        events: shared.events,
        traceId: tracer.currentTraceId,
        history,
        standing,
        onStep: (step, frames) => entity.onStep(step, frames)
      })
      const { events } = yield* entity.journal.update(Session.recover)
      if (events.length > 0 || history.epoch !== record.epoch) shared.save(entity)
      entities.set(key, entity)
      return entity
    })

  return {
    get: (tenant, id) =>
      Effect.suspend((): Effect.Effect<Entity, LookupError> => {
        // What is no id of ours is no name in the store either.
        if (!Ids.isSession(id)) return Effect.fail(new SessionNotFound({ sessionId: id }))
        const key = keyOf(tenant, id)
        const known = entities.get(key)
        if (known !== undefined) {
          return known.isDeleted ? Effect.fail(new SessionNotFound({ sessionId: id })) : Effect.succeed(known)
        }
        const underway = loading.get(key)
        if (underway !== undefined) return Deferred.await(underway)
        return Effect.flatMap(makeRoom, () => {
          const done = Deferred.unsafeMake<Entity, LookupError>(FiberId.none)
          loading.set(key, done)
          const work = Effect.onExit(load(key, tenant, id), exit =>
            Effect.suspend(() => {
              loading.delete(key)
              return Deferred.done(done, exit)
            })
          )
          return Effect.zipRight(Effect.forkIn(work, shared.scope), Deferred.await(done))
        })
      }),
    peek: (tenant, id) => entities.get(keyOf(tenant, id)),
    all: () => entities.values(),
    forget: entity => {
      if (entities.get(entity.key) === entity) entities.delete(entity.key)
    }
  }
}
