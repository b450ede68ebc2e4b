/**
 * Background work on sessions. Sessions of an earlier run or of a stopped node are recovered, those that another node has
 * taken are dropped, idle ones are stopped, unused ones are evicted, and all are stopped when the gateway shuts down.
 */
import { Cause, Duration, Effect, Option, Schedule, type Scope } from "effect"
import * as MetricTags from "../../MetricTags.ts"
import * as Supervision from "../../Supervision.ts"
import { takeovers } from "../Forwarding/Metrics.ts"
import type { Unfinished } from "../SessionEvents.ts"
import type { Entity } from "./Entity.ts"
import { delayAfter } from "./InstanceCleanup.ts"
import type { SessionCache } from "./SessionCache.ts"
import type { Shared } from "./SessionCore.ts"
import type { SessionRecords } from "./SessionRecords.ts"
import type { SessionTransfer } from "./SessionTransfer.ts"
import { sweepInterval, unusedTtl } from "./Settings.ts"

/** Sessions that are recovered concurrently after a restart. */
const recoveries = 8

/** The interval of attempts to read the unfinished sessions while the store is unavailable. */
const readRetries = Schedule.spaced("5 seconds")

/** How long the last records may take to be written. */
const saveTimeout = Duration.seconds(2)

/**
 * The transfer of sessions with secrets has what is left of the time for stopping sessions, most of which is unused in
 * general, and at least this part of it.
 */
const minTransferShare = 1 / 3

/**
 * Runs until the scope closes. Then `close` is called, sessions are stopped, and those with secrets are transferred to
 * other nodes.
 */
export const start = (
  shared: Shared,
  sessions: SessionCache,
  records: SessionRecords,
  transfer: Pick<SessionTransfer, "send">,
  close: () => void
): Effect.Effect<void, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { events, monotonic, platform, scope, settings, tags } = shared

    const visit = (entity: Entity) =>
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

    const sweep = Effect.gen(function* () {
      for (const session of yield* events.taken) {
        const entity = sessions.peek(session)
        if (entity === undefined) shared.secrets.forget(session)
        else entity.journal.lose()
      }
      yield* Effect.forEach([...sessions.all()], visit, { discard: true })
    })

    /** Only the stops of instances need the platform. The rest of a recovery does not wait for it. */
    const isPlatformUnavailable = Effect.map(
      platform.probe,
      Option.exists(({ status }) => status === "unhealthy")
    )

    /** Recovers a session. Returns it if this has to be repeated, and nothing otherwise. */
    const recoverOne = (unfinished: Unfinished, isUnavailable: boolean): Effect.Effect<ReadonlyArray<Unfinished>> => {
      const { recoveryState, session } = unfinished
      const slash = session.indexOf("/")
      const [tenant, id] = [session.slice(0, slash), session.slice(slash + 1)]
      if (sessions.peek(session) !== undefined) return Effect.succeed([])
      return sessions.get(tenant, id).pipe(
        Effect.catchTag("SessionNotFound", () => sessions.loadDeleted(tenant, id, recoveryState)),
        Effect.zipRight(
          Effect.suspend(() => {
            const entity = sessions.peek(session)
            if (entity === undefined) return Effect.void
            if (isUnavailable) entity.cleanup.postpone()
            return entity.lifecycle.reconcile()
          })
        ),
        Effect.as([]),
        // Another node has taken it first.
        Effect.catchTag("SessionElsewhere", () => Effect.succeed([])),
        Effect.catchAll(({ message }) =>
          Effect.annotateLogs(Effect.logWarning("A session could not be recovered; it will be retried"), {
            session,
            reason: message
          }).pipe(Effect.as([unfinished]))
        ),
        // It is retried as well: otherwise its instance could run forever.
        Effect.catchAllDefect(defect =>
          Effect.annotateLogs(Effect.logError("The recovery of a session failed with a defect", Cause.die(defect)), {
            session
          }).pipe(Effect.as([unfinished]))
        )
      )
    }

    /** Tries once to recover sessions. Returns those that are left. */
    const recoverAll = (left: ReadonlyArray<Unfinished>): Effect.Effect<ReadonlyArray<Unfinished>> =>
      Effect.gen(function* () {
        const isUnavailable = yield* isPlatformUnavailable
        if (isUnavailable) {
          yield* Effect.logWarning("The agent platform is unavailable; instances of the last run are stopped later")
        }
        const round = Effect.forEach(left, session => recoverOne(session, isUnavailable), { concurrency: recoveries })
        return (yield* round).flat()
      })

    const recover = Effect.gen(function* () {
      const outage = Supervision.outage("reading unfinished sessions")
      let left = yield* Effect.retry(Effect.tapErrorCause(events.unfinished, outage.failed), readRetries)
      yield* outage.over
      if (left.length === 0) return
      yield* Effect.logInfo("Recovering sessions of the gateway's last run").pipe(
        Effect.annotateLogs({ sessions: left.length })
      )
      for (let tries = 1; ; tries++) {
        left = yield* recoverAll(left)
        if (left.length === 0) return
        yield* Effect.sleep(delayAfter(tries))
      }
    })

    /** Takes over a portion of the sessions of stopped nodes. Returns whether the next portion may follow at once. */
    const takeOverPortion = Effect.gen(function* () {
      // A session that this node still has in memory is dropped first.
      const abandoned = (yield* events.abandoned).filter(({ session }) => sessions.peek(session) === undefined)
      if (abandoned.length === 0) return false
      yield* Effect.logInfo("Taking over sessions of a stopped node").pipe(
        Effect.annotateLogs({ sessions: abandoned.length })
      )
      // Those that are left are found again.
      const left = yield* recoverAll(abandoned)
      for (const { session } of abandoned) if (sessions.peek(session) !== undefined) takeovers.unsafeUpdate(1, tags)
      return left.length < abandoned.length
    })
    const takeOver = Effect.repeat(takeOverPortion, { while: hasMore => hasMore })

    const shutDown = Effect.gen(function* () {
      const startedAt = monotonic()
      close()
      const entities = [...sessions.all()].filter(({ lifecycle }) => lifecycle.needsShutdown)
      if (entities.length > 0) {
        yield* Effect.logInfo("Stopping sessions").pipe(Effect.annotateLogs({ sessions: entities.length }))
      }
      const { stopping } = settings
      const end = ({ cleanup, lifecycle }: Entity) =>
        Effect.zipRight(Effect.ignore(lifecycle.stop("the gateway is shutting down")), cleanup.run(stopping))
      yield* Supervision.within(stopping, Effect.forEach(entities, end, { concurrency: "unbounded", discard: true }))
      yield* Supervision.within(saveTimeout, records.flush)
      // A session that could not be stopped is recovered by the node that takes it over.
      const left = Duration.toMillis(stopping) - (monotonic() - startedAt)
      const timeout = Math.max(left, Duration.toMillis(stopping) * minTransferShare)
      yield* transfer.send(session => sessions.peek(session)?.isQuiescent !== false, timeout)
    })

    yield* Effect.addFinalizer(() => shutDown)
    // The recovery runs once. `Effect.never` keeps the supervisor from starting it again.
    yield* Supervision.forkIn("recovery of sessions", Effect.zipRight(recover, Effect.never), scope)
    if (events.isShared) {
      MetricTags.register([takeovers], tags)
      const outage = Supervision.outage("taking sessions over")
      const once = Effect.matchCauseEffect(takeOver, { onFailure: outage.failed, onSuccess: () => outage.over })
      yield* Supervision.forkIn("taking sessions over", Effect.repeat(once, Schedule.spaced(sweepInterval)), scope)
    }
    yield* Supervision.forkIn("watch over sessions", Supervision.tick(sweepInterval, sessions, sweep), scope)
  })
