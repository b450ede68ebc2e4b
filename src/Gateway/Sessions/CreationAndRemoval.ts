/**
 * Creating and deleting sessions, of which parts are stored in several places, in an order that leaves none of them behind.
 */
import { Clock, type Context, Effect, Fiber, type Scope } from "effect"
import type { LimitsShape } from "../../base/Limits.ts"
import { StoreUnavailable } from "../../Kv/Store.ts"
import type { SessionEvents } from "../SessionEvents.ts"
import { type Caller, SessionConflict, type Sessions, SessionTooLarge } from "../Sessions.ts"
import type { Entity } from "./Entity.ts"
import { check, empty, merge, storedParts } from "./Instance/LaunchConfiguration.ts"
import type { SecretPool } from "./Session/SecretPool.ts"
import * as SessionRecord from "./Session/SessionRecord.ts"
import type { SessionRecords } from "./Session/SessionRecords.ts"
import type { SessionCache } from "./SessionCache.ts"
import type { Quota } from "./TenantSessions.ts"

/** Where the parts of a session are stored, and what limits them. */
export interface Options {
  readonly cache: Pick<SessionCache, "get" | "evict">
  readonly events: Context.Tag.Service<SessionEvents>
  readonly records: Pick<SessionRecords, "create" | "remove">
  readonly quota: Quota
  readonly secrets: SecretPool
  readonly limits: LimitsShape
  /** Whether this node takes requests of other nodes, so that a session with secrets can belong to it. */
  readonly isReachable: boolean
  /** In which deletions run. */
  readonly scope: Scope.Scope
}

/** `Sessions.create`: secrets and launch configuration are stored before the record, which makes the session visible. */
export const makeCreate =
  ({ events, isReachable, limits, quota, records, secrets }: Options): Context.Tag.Service<Sessions>["create"] =>
  ({ tenant, actor }, request) =>
    Effect.gen(function* () {
      const configuration = merge(empty, request)
      const given = request.secrets ?? {}
      yield* check(configuration, given)
      const record = yield* SessionRecord.initial(tenant, request, storedParts(configuration))
      const text = SessionRecord.encodeRecord(record)
      const bytes = Buffer.byteLength(text)
      if (bytes > limits.valueBytes) {
        return yield* new SessionTooLarge({
          message: `The session has ${bytes} bytes without its secrets; the limit is ${limits.valueBytes}`
        })
      }
      const key = SessionRecord.keyOf(tenant, record.id)
      const isConfigured = record.configured.length > 0
      /** A session with secrets belongs to the node that stores them, from the start. */
      const isOwned = isReachable && record.secretNames.length > 0
      const undo = Effect.suspend(() => {
        secrets.forget(key)
        // What is left after a failure is removed as orphaned.
        return isConfigured || events.isShared ? Effect.ignore(events.remove(key)) : Effect.void
      })
      const creation = Effect.gen(function* () {
        // No other node knows the id, so none can own the session.
        if (isOwned) yield* Effect.catchTag(events.open(key, record.epoch), "SessionElsewhere", Effect.die)
        // Before the record, so that a session whose history is missing later has lost it in a fail-over.
        else if (events.isShared) yield* events.create(key, record.epoch)
        yield* secrets.put(key, given)
        // Before the record, which names the stored parts.
        if (isConfigured) {
          yield* Effect.catchTag(events.configure(key, configuration), "SessionElsewhere", Effect.die)
        }
        // By the wall clock: the monotonic clock does not advance while the machine is suspended.
        if ((yield* Clock.currentTimeMillis) - record.createdAt > SessionRecord.longestCreation) {
          return yield* new StoreUnavailable({ reason: "the creation took too long" })
        }
        yield* records.create(text, record, actor)
      }).pipe(Effect.onError(() => undo))
      yield* quota.creating(tenant, creation)
      return SessionRecord.toView(record, { secrets: [], configuration: [] })
    }).pipe(
      Effect.catchTag("PreconditionFailed", () =>
        Effect.fail(new SessionConflict({ message: "The id that was drawn is taken; try again" }))
      )
    )

/**
 * `Sessions.remove`: the instance is stopped, the record is removed, and what is stored of the session follows once
 * nothing of it is left to stop.
 */
export const makeRemove = ({
  cache,
  events,
  quota,
  records,
  scope,
  secrets
}: Options): Context.Tag.Service<Sessions>["remove"] => {
  const removal = ({ tenant, actor }: Caller, entity: Entity) =>
    Effect.gen(function* () {
      yield* entity.lifecycle.stop("the session was deleted")
      // A creation of unknown outcome can be repeated only with what the record has.
      const { agentType } = entity.record
      yield* entity.setState(state =>
        state.pendingStops.some(({ instanceId }) => instanceId === null) ? { ...state, request: { agentType } } : state
      )
      yield* quota.deleting(tenant, records.remove(entity, actor))
      entity.completeDeletion()
      secrets.forget(entity.key)
      // A session with pending stops is kept until they are done.
      const { instance, pendingStops } = entity.state
      if (instance === null && pendingStops.length === 0) {
        yield* entity.configuration.remove()
        cache.evict(entity)
        // Any change of what is stored notifies the other nodes.
      } else if (events.isShared) yield* Effect.ignore(entity.confirm)
    }).pipe(
      Effect.onError(() => Effect.sync(() => entity.abortDeletion())),
      Effect.uninterruptible
    )

  // It runs in its own fiber: a caller that cannot be interrupted would delay the gateway's shutdown.
  return (caller, sessionId) =>
    Effect.flatMap(cache.get(caller.tenant, sessionId), entity => {
      // Before the fiber runs, so that no activation starts in the meantime.
      entity.beginDeletion()
      return Effect.flatMap(Effect.forkIn(entity.use(removal(caller, entity)), scope), Fiber.join)
    })
}
