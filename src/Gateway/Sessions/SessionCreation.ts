/**
 * Creating sessions: the session's secrets and launch configuration are stored before its record, which makes it visible.
 */
import { Clock, type Context, Effect } from "effect"
import { StoreUnavailable } from "../../Kv/Store.ts"
import type { LimitsShape } from "../../Limits.ts"
import type { SessionEvents } from "../SessionEvents.ts"
import { SessionConflict, type Sessions, SessionTooLarge } from "../Sessions.ts"
import { check, empty, merge, storedParts } from "./LaunchConfiguration.ts"
import type { SecretPool } from "./SecretPool.ts"
import * as SessionRecord from "./SessionRecord.ts"
import type { SessionRecords } from "./SessionRecords.ts"
import type { Quota } from "./TenantSessions.ts"

/** Where the parts of a new session are stored, and what limits them. */
export interface Options {
  readonly events: Context.Tag.Service<SessionEvents>
  readonly records: Pick<SessionRecords, "create">
  readonly quota: Quota
  readonly secrets: SecretPool
  readonly limits: LimitsShape
  /** Whether this node takes requests of other nodes, so that a session with secrets can belong to it. */
  readonly isReachable: boolean
}

/** `Sessions.create`. */
export const make =
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
