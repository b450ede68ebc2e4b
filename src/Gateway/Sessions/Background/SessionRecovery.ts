/**
 * Recovers sessions that an earlier run or a stopped node has left unfinished: their turns are ended, and their instances
 * are stopped.
 */
import { Cause, Effect, Metric, Option, Schedule } from "effect"
import * as Supervision from "../../../base/Supervision.ts"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import type { Unfinished } from "../../SessionEvents.ts"
import { delayAfter } from "../Instance/InstanceCleanup.ts"
import type { Shared } from "../Session/SessionCore.ts"
import { addressOf } from "../Session/SessionRecord.ts"
import type { SessionCache } from "../SessionCache.ts"

/** Sessions that this node has taken over. */
export const takeovers = Metric.counter("session_takeovers_total", {
  description: "Sessions of stopped nodes that this node has taken over.",
  incremental: true
})

/** Sessions that are recovered concurrently. */
const concurrency = 8

/** The interval of attempts to read the unfinished sessions while the store is unavailable. */
const readRetries = Schedule.spaced("5 seconds")

/** The sessions in memory, which recovered sessions join. */
type Cache = Pick<SessionCache, "get" | "loadDeleted" | "peek">

const reconcile = (sessions: Cache, session: string, isPlatformUnavailable: boolean): Effect.Effect<void> =>
  Effect.suspend(() => {
    const entity = sessions.peek(session)
    if (entity === undefined) return Effect.void
    if (isPlatformUnavailable) entity.cleanup.postpone()
    return entity.lifecycle.reconcile()
  })

/** Recovers a session. Returns whether this has to be repeated. */
const recoverOne = (
  sessions: Cache,
  { recoveryState, session }: Unfinished,
  isPlatformUnavailable: boolean
): Effect.Effect<boolean> => {
  const [tenant, id] = addressOf(session)
  if (sessions.peek(session) !== undefined) return Effect.succeed(false)
  return sessions.get(tenant, id).pipe(
    Effect.catchTag("SessionNotFound", () => sessions.loadDeleted(tenant, id, recoveryState)),
    Effect.zipRight(reconcile(sessions, session, isPlatformUnavailable)),
    Effect.as(false),
    // Another node has taken it first.
    Effect.catchTag("SessionElsewhere", () => Effect.succeed(false)),
    Effect.catchAll(({ message }) =>
      Effect.annotateLogs(Effect.logWarning("A session could not be recovered; it will be retried"), {
        session,
        reason: message
      }).pipe(Effect.as(true))
    ),
    // It is retried as well: otherwise its instance could run forever.
    Effect.catchAllDefect(defect =>
      Effect.annotateLogs(Effect.logError("The recovery of a session failed with a defect", Cause.die(defect)), {
        session
      }).pipe(Effect.as(true))
    )
  )
}

/** Tries once to recover sessions. Returns those that are left. */
const recoverAll = (
  { platform }: Pick<Shared, "platform">,
  sessions: Cache,
  unfinished: ReadonlyArray<Unfinished>
): Effect.Effect<ReadonlyArray<Unfinished>> =>
  Effect.gen(function* () {
    // Only the stops of instances need the platform. The rest of a recovery does not wait for it.
    const isUnavailable = Option.exists(yield* platform.probe, ({ status }) => status === "unhealthy")
    if (isUnavailable) {
      yield* Effect.logWarning("The agent platform is unavailable; instances of the last run are stopped later")
    }
    return yield* Effect.filter(unfinished, session => recoverOne(sessions, session, isUnavailable), { concurrency })
  })

/** Recovers the sessions of the last run. Ends when none is left. */
export const recover = (
  shared: Pick<Shared, "events" | "platform">,
  sessions: Cache
): Effect.Effect<void, StoreUnavailable> =>
  Effect.gen(function* () {
    const outage = Supervision.outage("reading unfinished sessions")
    let left = yield* Effect.retry(Effect.tapErrorCause(shared.events.unfinished, outage.failed), readRetries)
    yield* outage.over
    if (left.length === 0) return
    yield* Effect.logInfo("Recovering sessions of the gateway's last run").pipe(
      Effect.annotateLogs({ sessions: left.length })
    )
    for (let tries = 1; ; tries++) {
      left = yield* recoverAll(shared, sessions, left)
      if (left.length === 0) return
      yield* Effect.sleep(delayAfter(tries))
    }
  })

/** Takes over a portion of the sessions of stopped nodes. Returns whether the next portion may follow at once. */
const takeOverPortion = (shared: Pick<Shared, "events" | "platform" | "tags">, sessions: Cache) =>
  Effect.gen(function* () {
    // A session that this node still has in memory is dropped first.
    const abandoned = (yield* shared.events.abandoned).filter(({ session }) => sessions.peek(session) === undefined)
    if (abandoned.length === 0) return false
    yield* Effect.logInfo("Taking over sessions of a stopped node").pipe(
      Effect.annotateLogs({ sessions: abandoned.length })
    )
    // Those that are left are found again.
    const left = yield* recoverAll(shared, sessions, abandoned)
    for (const { session } of abandoned)
      if (sessions.peek(session) !== undefined) takeovers.unsafeUpdate(1, shared.tags)
    return left.length < abandoned.length
  })

/** Takes over the sessions of stopped nodes. Fails if they cannot be read. */
export const takeOver = (shared: Pick<Shared, "events" | "platform" | "tags">, sessions: Cache) =>
  Effect.repeat(takeOverPortion(shared, sessions), { while: hasMore => hasMore })
