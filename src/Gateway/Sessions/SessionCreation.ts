/**
 * Creating sessions: the session's secrets and launch configuration are stored before its record, which makes it visible.
 */
import { type Context, Effect, Option, type Scope } from "effect"
import { type StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import type { LimitsShape } from "../../Limits.ts"
import * as Supervision from "../../Supervision.ts"
import type { SessionEvents } from "../SessionEvents.ts"
import { SessionConflict, type Sessions, SessionTooLarge } from "../Sessions.ts"
import { check, empty, merge, storedParts } from "./LaunchConfiguration.ts"
import type { SecretPool } from "./SecretPool.ts"
import * as SessionRecord from "./SessionRecord.ts"
import type { SessionRecords } from "./SessionRecords.ts"
import type { Quota } from "./TenantSessions.ts"

/** How often the removal of orphans is tried. */
const removalInterval = "5 seconds"

/** While so many wait to be removed, no session is created of which more than the record is stored. */
const maxOrphans = 10_000

/** Where the parts of a new session are stored, and what limits them. */
export interface Options {
  readonly events: Context.Tag.Service<SessionEvents>
  readonly records: Pick<SessionRecords, "create" | "find">
  readonly quota: Quota
  readonly secrets: SecretPool
  readonly limits: LimitsShape
  /** Whether this node takes requests of other nodes, so that a session with secrets can belong to it. */
  readonly isReachable: boolean
  /** Of the background removal. */
  readonly scope: Scope.Scope
}

/** The histories and launch configurations of sessions whose creation failed. Nothing else would ever remove them. */
class Orphans {
  /** Tenants and ids, by key. */
  private readonly sessions = new Map<string, readonly [tenant: string, id: string]>()
  private readonly occupancy = new Supervision.Occupancy()

  constructor(
    private readonly events: Context.Tag.Service<SessionEvents>,
    private readonly records: Pick<SessionRecords, "find">
  ) {}

  get size(): number {
    return this.sessions.size
  }

  /** Removes what is stored of a session now, or in the background if that fails. */
  remove(tenant: string, id: string): Effect.Effect<void> {
    const key = SessionRecord.keyOf(tenant, id)
    return Effect.catchAll(this.removeNow(key), () =>
      Effect.sync(() => {
        this.sessions.set(key, [tenant, id])
        this.occupancy.set(true)
      })
    )
  }

  /** A session of another node exists: its record was created, although the store had not answered in time. */
  private removeNow(key: string): Effect.Effect<void, StoreBusy | StoreUnavailable> {
    return Effect.catchTag(this.events.remove(key), "SessionElsewhere", () => Effect.void)
  }

  /** The record of the session may have been created later. */
  private removeLater(tenant: string, id: string): Effect.Effect<void, StoreBusy | StoreUnavailable> {
    return Effect.flatMap(this.records.find(tenant, id), found =>
      Option.isSome(found) ? Effect.void : this.removeNow(SessionRecord.keyOf(tenant, id))
    )
  }

  /** One at a time until the first failure: while the database is unavailable, all of them cost no more than one. */
  private readonly removeAll = Effect.suspend(() =>
    Effect.forEach(
      [...this.sessions],
      ([key, [tenant, id]]) => Effect.map(this.removeLater(tenant, id), () => this.sessions.delete(key)),
      { discard: true }
    )
  ).pipe(Effect.ensuring(Effect.sync(() => this.occupancy.set(this.sessions.size > 0))))

  start(scope: Scope.Scope): Effect.Effect<void> {
    const removing = Supervision.tick(removalInterval, this.occupancy, Effect.ignore(this.removeAll))
    return Supervision.forkIn("removal of what is left of sessions", removing, scope)
  }
}

/** `Sessions.create`. */
export const make = ({
  events,
  isReachable,
  limits,
  quota,
  records,
  scope,
  secrets
}: Options): Effect.Effect<Context.Tag.Service<Sessions>["create"]> =>
  Effect.gen(function* () {
    const orphans = new Orphans(events, records)
    yield* orphans.start(scope)
    return ({ tenant, actor }, request) =>
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
        if ((isConfigured || events.isShared) && orphans.size >= maxOrphans) {
          return yield* new StoreUnavailable({
            reason: `${orphans.size} sessions that were not created wait to be removed`
          })
        }
        const undo = Effect.suspend(() => {
          secrets.forget(key)
          return isConfigured || events.isShared ? orphans.remove(tenant, record.id) : Effect.void
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
          yield* records.create(text, record, actor)
        }).pipe(Effect.onError(() => undo))
        yield* quota.creating(tenant, creation)
        return SessionRecord.toView(record, { secrets: [], configuration: [] })
      }).pipe(
        Effect.catchTag("PreconditionFailed", () =>
          Effect.fail(new SessionConflict({ message: "The id that was drawn is taken; try again" }))
        )
      )
  })
