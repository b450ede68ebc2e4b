/**
 * Background work on sessions. Sessions of an earlier run or of a stopped node are recovered, those that another node has
 * taken are dropped, idle ones are stopped, unused ones are evicted, and all are stopped when the gateway shuts down.
 */

import { Array as Arr, Cause, type Context, Duration, Effect, Metric, Option, Schedule, type Scope } from "effect"
import * as MetricTags from "../../../base/Observability/MetricTags.ts"
import * as Supervision from "../../../base/Supervision.ts"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import type { Unfinished } from "../../SessionEvents.ts"
import type { Sessions } from "../../Sessions.ts"
import type { Entity } from "../Entity.ts"
import { delayAfter } from "../Instance/PlatformInstances.ts"
import type { Shared } from "../Session/SessionCore.ts"
import { addressOf, gatewayActor, type SessionRecords } from "../Session/SessionRecords.ts"
import type { SessionCache } from "../SessionCache.ts"
import { sweepInterval, unusedTtl } from "../Settings.ts"
import type { SessionTransfer } from "./SessionTransfer.ts"

/** Sessions that this node has taken over. */
const takeovers = Metric.counter("session_takeovers_total", {
  description: "Sessions of stopped nodes that this node has taken over.",
  incremental: true
})

/** Sessions that are recovered concurrently. */
const concurrency = 8

/** The interval of attempts to read the unfinished sessions while the store is unavailable. */
const readRetries = Schedule.spaced("5 seconds")

/** The sessions in memory, which recovered sessions join. */
type Cache = Pick<SessionCache, "get" | "loadDeleted" | "peek">

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
    Effect.zipRight(
      Effect.suspend(() => {
        const entity = sessions.peek(session)
        if (isPlatformUnavailable) entity?.instances.postpone()
        return entity?.lifecycle.reconcile() ?? Effect.void
      })
    ),
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
  { platform }: Shared,
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
const recover = (shared: Shared, sessions: Cache): Effect.Effect<void, StoreUnavailable> =>
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

/** Takes over the sessions of stopped nodes, one portion after the other. Fails if they cannot be read. */
const takeOver = (shared: Shared, sessions: Cache) =>
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
  }).pipe(Effect.repeat({ while: hasMore => hasMore }))

/** How long the last records may take to be written. */
const saveTimeout = Duration.seconds(2)

/** The part of the time for stopping sessions that their transfer has at least. In general most of that time is left. */
const minTransferShare = 1 / 3

/**
 * Stops sessions within `settings.stopping`, and saves their records. The transfer has the rest of that time, or at least
 * a third of it.
 */
export const shutDown = (
  { monotonic, settings: { stopping } }: Pick<Shared, "monotonic" | "settings">,
  sessions: Pick<SessionCache, "all" | "peek">,
  records: Pick<SessionRecords, "flush">,
  transfer: Pick<SessionTransfer, "send">
): Effect.Effect<void> =>
  Effect.gen(function* () {
    const startedAt = monotonic()
    const entities = [...sessions.all()].filter(({ lifecycle }) => lifecycle.needsShutdown)
    if (entities.length > 0) {
      yield* Effect.logInfo("Stopping sessions").pipe(Effect.annotateLogs({ sessions: entities.length }))
    }
    const end = ({ instances, lifecycle }: Entity) =>
      Effect.zipRight(Effect.ignore(lifecycle.stop("the gateway is shutting down")), instances.stopPending(stopping))
    yield* Supervision.within(stopping, Effect.forEach(entities, end, { concurrency: "unbounded", discard: true }))
    yield* Supervision.within(saveTimeout, records.flush)
    // A session that could not be stopped is recovered by the node that takes it over.
    const left = Duration.toMillis(stopping) - (monotonic() - startedAt)
    const timeout = Math.max(left, Duration.toMillis(stopping) * minTransferShare)
    yield* transfer.send(session => sessions.peek(session)?.isQuiescent !== false, timeout)
  })

type Remove = Context.Tag.Service<Sessions>["remove"]

/** Stops an idle session, reconciles any other with its instances, and evicts it if it is not used. */
const visit = ({ events, monotonic, scope, settings }: Shared, sessions: SessionCache, entity: Entity) =>
  Effect.gen(function* () {
    const now = monotonic()
    if (entity.isIdleSince(now - Duration.toMillis(settings.idleTimeout)) && !entity.journal.isLost()) {
      yield* Effect.logInfo("A session is idle and is stopped").pipe(Effect.annotateLogs({ session: entity.key }))
      yield* Effect.forkIn(Effect.ignore(entity.lifecycle.stop("idle", false)), scope)
    } else yield* entity.lifecycle.reconcile()
    if (entity.isGivenUp) return sessions.evict(entity)
    if (!entity.isEvictable) return
    if (entity.isDeleted) yield* events.remove(entity.key)
    else if (!entity.isUnusedSince(now - Duration.toMillis(unusedTtl))) return
    sessions.evict(entity)
  }).pipe(
    Effect.ignore,
    // A bug in one session does not affect the others.
    Effect.catchAllDefect(defect =>
      Effect.logError("The background work on a session failed", Cause.die(defect)).pipe(
        Effect.annotateLogs({ session: entity.key })
      )
    )
  )

/** Sessions of which something is read at once. */
const portion = 200

/**
 * Finds sessions with subscribers whose stored history is behind the memory or missing, as after a restore of the
 * database. Without this, their subscribers would learn of it with the next event.
 */
const compareHistories = ({ events }: Pick<Shared, "events">, sessions: SessionCache) =>
  Effect.gen(function* () {
    const followed = [...sessions.all()].filter(entity => entity.hasSubscribers && !entity.isDeleting)
    for (const entities of Arr.chunksOf(followed, portion)) {
      const known = entities.map(({ journal }) => ({ journal, headSeq: journal.history().headSeq }))
      const summaries = yield* events.summaries(entities.map(({ key }) => key))
      for (const [index, { headSeq, journal }] of known.entries()) {
        const summary = summaries[index]
        if (summary && (summary.headSeq === null || summary.headSeq < headSeq)) journal.lose()
      }
    }
  })

/**
 * Deletes the sessions whose entries another client has removed: they are not listed any longer, and no other node finds
 * them. One whose history is lost as well is deleted when that is replaced.
 */
const deleteRemoved = (shared: Shared, sessions: SessionCache, records: SessionRecords, remove: Remove) =>
  Effect.gen(function* () {
    const present = [...sessions.all()].filter(
      entity => !entity.isDeleting && !entity.isGivenUp && !entity.journal.isLost()
    )
    for (const entities of Arr.chunksOf(present, portion)) {
      const missing = new Set(yield* records.missing(entities.map(({ key }) => key)))
      for (const { isDeleting, key, record } of entities) {
        if (!missing.has(key) || isDeleting) continue
        yield* Effect.logWarning("The entry of a session was removed by another client; the session is deleted").pipe(
          Effect.annotateLogs({ session: key })
        )
        const removal = remove({ tenant: record.tenant, actor: gatewayActor }, record.id)
        yield* Effect.forkIn(Effect.ignore(removal), shared.scope)
      }
    }
  })

/** Drops the sessions that another node has taken. */
const drop = (shared: Shared, sessions: SessionCache): Effect.Effect<void> =>
  Effect.flatMap(shared.events.taken, taken => {
    for (const session of taken) {
      const entity = sessions.peek(session)
      if (entity === undefined) shared.secrets.forget(session)
      else {
        entity.giveUp()
        sessions.evict(entity)
      }
    }
    return Effect.annotateLogs(Effect.logWarning("Sessions belong to other nodes now; this node has dropped them"), {
      sessions: taken.length
    })
  })

/** Visits all sessions. */
const sweep = (shared: Shared, sessions: SessionCache, records: SessionRecords, remove: Remove): Effect.Effect<void> =>
  Effect.gen(function* () {
    yield* Effect.ignore(compareHistories(shared, sessions))
    yield* Effect.ignore(deleteRemoved(shared, sessions, records, remove))
    yield* Effect.forEach([...sessions.all()], entity => visit(shared, sessions, entity), { discard: true })
  })

/**
 * Runs until the scope closes. Then `close` is called, sessions are stopped, and those with secrets are transferred to
 * other nodes.
 */
export const start = (
  shared: Shared,
  sessions: SessionCache,
  records: SessionRecords,
  transfer: Pick<SessionTransfer, "send">,
  remove: Remove,
  close: () => void
): Effect.Effect<void, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { events, scope, tags } = shared
    yield* Effect.addFinalizer(() => Effect.zipRight(Effect.sync(close), shutDown(shared, sessions, records, transfer)))
    // The recovery runs once. `Effect.never` keeps the supervisor from starting it again.
    const recovery = Effect.zipRight(recover(shared, sessions), Effect.never)
    yield* Supervision.forkIn("recovery of sessions", recovery, scope)
    if (events.isShared) {
      MetricTags.register([takeovers], tags)
      const outage = Supervision.outage("taking sessions over")
      const once = Effect.matchCauseEffect(takeOver(shared, sessions), {
        onFailure: outage.failed,
        onSuccess: () => outage.over
      })
      yield* Supervision.forkIn("taking sessions over", Effect.repeat(once, Schedule.spaced(sweepInterval)), scope)
    }
    yield* Supervision.forkIn("dropping sessions of other nodes", Effect.forever(drop(shared, sessions)), scope)
    const watching = Supervision.tick(sweepInterval, sessions, sweep(shared, sessions, records, remove))
    yield* Supervision.forkIn("watch over sessions", watching, scope)
  })
