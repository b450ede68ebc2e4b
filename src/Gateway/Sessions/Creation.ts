/** The creation of sessions, with a drawn id or a chosen one. */
import { Clock, type Context, Duration, Effect, type Scope } from "effect"
import type * as Limits from "../../base/Limits.ts"
import { SingleFlight } from "../../base/SingleFlight.ts"
import { type StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import type { Session } from "../Protocol/Fields.ts"
import type { SessionEvents } from "../SessionEvents.ts"
import {
  type CreationError,
  InvalidSessionId,
  SessionConflict,
  SessionExists,
  type Sessions,
  SessionTooLarge
} from "../Sessions.ts"
import { check, empty, merge, storedParts } from "./Instance/LaunchConfiguration.ts"
import type { SecretPool } from "./Session/SecretPool.ts"
import * as Records from "./Session/SessionRecords.ts"
import type { SessionCache } from "./SessionCache.ts"
import type * as TenantSessions from "./TenantSessions.ts"

/** Where the parts of a session are stored, and what limits them. */
export interface Parts {
  readonly cache: Pick<SessionCache, "get" | "peek">
  readonly events: Context.Tag.Service<SessionEvents>
  readonly records: Pick<Records.SessionRecords, "create" | "missing">
  readonly quota: TenantSessions.Quota
  readonly secrets: SecretPool
  readonly limits: Limits.LimitsShape
  /** Whether this node takes requests of other nodes, so that a session with secrets can belong to it. */
  readonly isReachable: boolean
  /** In which creations with a chosen id run, and deletions. */
  readonly scope: Scope.Scope
}

/** How far the time in a chosen id may differ from that of this node: less than the longest creation. */
const skew = Duration.toMillis("1 minute")

const checkTime = (id: string): Effect.Effect<void, InvalidSessionId> =>
  Effect.flatMap(Clock.currentTimeMillis, now =>
    Records.isSessionId(id) && Math.abs(now - Records.timeOf(id)) <= skew
      ? Effect.void
      : new InvalidSessionId({
          message: `id: its first 12 digits must be the time in epoch milliseconds; that of the service is ${Math.trunc(now).toString(16).padStart(12, "0")}`
        })
  )

/**
 * Reserves a chosen id: the history of the session, which belongs to this node from then on, so that no other node creates
 * the session at the same time. Returns the epoch. The history may be that of an earlier creation that has failed.
 */
const reserve = (
  { cache, events, records }: Parts,
  { epoch, id, tenant }: Records.SessionRecord
): Effect.Effect<string, SessionConflict | SessionExists | StoreBusy | StoreUnavailable> => {
  const key = Records.keyOf(tenant, id)
  const exists = new SessionExists({ sessionId: id })
  const checkAbsent = Effect.filterOrFail(
    records.missing([key]),
    missing => missing.length > 0,
    () => exists
  )
  const inUse = new SessionConflict({ message: "The id is that of a deleted session" })
  return Effect.gen(function* () {
    yield* checkAbsent
    if (cache.peek(key) !== undefined) return yield* inUse
    const history = yield* Effect.catchTag(events.open(key, epoch), "SessionElsewhere", () => exists)
    // Another node may have created it since the first check.
    yield* Effect.onError(checkAbsent, () => Effect.ignore(events.release(key)))
    return history.headSeq === 0 ? history.epoch : yield* inUse
  })
}

/**
 * The order of the writes here and in a removal leaves no part of a session behind: secrets and launch configuration are
 * stored before the record, which makes the session visible.
 */
const makeWithId = (parts: Parts): Service["create"] => {
  const { cache, events, isReachable, limits, quota, records, secrets } = parts
  return ({ tenant, actor }, request, chosen, also) =>
    Effect.gen(function* () {
      const configuration = merge(empty, request)
      const given = request.secrets ?? {}
      yield* check(configuration, given)
      const initial = yield* Records.initial(tenant, request, storedParts(configuration), chosen)
      const bytes = Buffer.byteLength(Records.encodeRecord(initial))
      if (bytes > limits.valueBytes) {
        return yield* new SessionTooLarge({
          message: `The session has ${bytes} bytes without its secrets; the limit is ${limits.valueBytes}`
        })
      }
      const key = Records.keyOf(tenant, initial.id)
      const isConfigured = initial.configured.length > 0
      /** A session with secrets belongs to the node that stores them, from the start. */
      const isOwned = isReachable && initial.secretNames.length > 0
      const undo = Effect.suspend(() => {
        secrets.forget(key)
        // What is left after a failure is removed as orphaned.
        return Effect.ignore(events.remove(key))
      })
      const write = (record: Records.SessionRecord) =>
        Effect.gen(function* () {
          // No other node knows a drawn id, so none can own the session.
          if (chosen === undefined) {
            if (isOwned) yield* Effect.catchTag(events.open(key, record.epoch), "SessionElsewhere", Effect.die)
            // Before the record, so that the session is listed by its activity from the start, and a shared session whose
            // history is missing later has lost it in a fail-over.
            else yield* events.create(key, record.epoch)
          }
          yield* secrets.put(key, given)
          // Before the record, which names the stored parts.
          if (isConfigured || chosen !== undefined) {
            yield* Effect.catchTag(events.configure(key, configuration), "SessionElsewhere", Effect.die)
          }
          // By the wall clock: the monotonic clock does not advance while the machine is suspended.
          if ((yield* Clock.currentTimeMillis) - record.createdAt > Records.longestCreation) {
            return yield* new StoreUnavailable({ reason: "the creation took too long" })
          }
          yield* records.create(Records.encodeRecord(record), record, actor, also && [also(record.id)])
          return record
        }).pipe(Effect.onError(() => undo))
      const creation =
        chosen === undefined
          ? write(initial)
          : Effect.flatMap(reserve(parts, initial), epoch => write({ ...initial, epoch }))
      const record = yield* quota.creating(tenant, creation)
      // In memory it is released like any other; one with secrets stays with this node.
      if (chosen !== undefined && events.isShared && !isOwned) yield* Effect.ignore(cache.get(tenant, record.id))
      return Records.toView(record, { secrets: [], configuration: [] }, Records.idle)
    }).pipe(
      Effect.catchTag("PreconditionFailed", () =>
        Effect.fail(new SessionConflict({ message: "The id or the name of the session is taken; try again" }))
      )
    )
}

type Service = Context.Tag.Service<Sessions>

/** `Sessions.create`. */
export const make = (parts: Parts): Service["create"] => {
  const create = makeWithId(parts)
  /** By session. A creation with a chosen id continues without its caller, who may repeat it. */
  const inProgress = new SingleFlight<string, Session, CreationError>(parts.scope)
  return (caller, request, id, also) => {
    if (id === undefined) return create(caller, request, id, also)
    const key = Records.keyOf(caller.tenant, id)
    return Effect.zipRight(
      checkTime(id),
      Effect.suspend(() => {
        const isJoining = inProgress.isRunning(key)
        const created = inProgress.run(key, create(caller, request, id, also))
        return isJoining ? Effect.zipRight(created, new SessionExists({ sessionId: id })) : created
      })
    )
  }
}
