/**
 * Background work on sessions: those of an earlier run or of a node that is gone are recovered, those that another node
 * has taken are given up, idle ones are stopped, unused ones are evicted, and all are stopped when the gateway shuts
 * down.
 */
import { Cause, Duration, Effect, Option, Schedule, type Scope } from "effect"
import * as MetricTags from "../../MetricTags.ts"
import * as Supervision from "../../Supervision.ts"
import { takeovers } from "../Forwarding/Metrics.ts"
import type { Unfinished } from "../SessionEvents.ts"
import type { Entity } from "./Entity.ts"
import type { Handover } from "./Handover.ts"
import { delayAfter } from "./InstanceCleanup.ts"
import type { SessionCache } from "./SessionCache.ts"
import type { Shared } from "./SessionCore.ts"
import type { SessionRecords } from "./SessionRecords.ts"
import { sweepInterval, unusedTtl } from "./Settings.ts"

/** Sessions that are recovered concurrently after a restart. */
const recoveries = 8

/** Between attempts to read what the last run has left, as long as the store is unavailable. */
const readRetries = Schedule.spaced("5 seconds")

/** How long the last records may take to be written. */
const saveLimit = Duration.seconds(2)

/**
 * The hand-over of secrets has what is left of the time for stopping sessions, which most of them need little of, and at
 * least this part of it.
 */
const leastHandover = 1 / 3

/**
 * Runs until the scope closes; then `close` is called before sessions are stopped, and those with secrets are handed
 * over.
 */
export const start = (
  shared: Shared,
  sessions: SessionCache,
  records: SessionRecords,
  handover: Pick<Handover, "give">,
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

    /** Instances can only be stopped by a platform that is reachable; nothing else of a recovery waits for it. */
    const isPlatformUnavailable = Effect.map(
      platform.probe,
      Option.exists(({ status }) => status === "unhealthy")
    )

    /** Recovers a session of the last run; answers it where that has to be repeated. */
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
        // Another node was quicker.
        Effect.catchTag("SessionElsewhere", () => Effect.succeed([])),
        Effect.catchAll(({ message }) =>
          Effect.annotateLogs(Effect.logWarning("A session that was left behind could not be recovered yet"), {
            session,
            reason: message
          }).pipe(Effect.as([unfinished]))
        ),
        // It is tried again as well: otherwise its instance could run on for ever.
        Effect.catchAllDefect(defect =>
          Effect.annotateLogs(Effect.logError("The recovery of a session met a defect", Cause.die(defect)), {
            session
          }).pipe(Effect.as([unfinished]))
        )
      )
    }

    /** Tries once to recover sessions, and answers those that are left. */
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
      const outage = Supervision.outage("reading what the last run has left")
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

    /**
     * Takes over a portion of the sessions of nodes that are gone. Tells whether another one may be taken over at once.
     */
    const takeOverPortion = Effect.gen(function* () {
      // One that this node still has in memory is given up first.
      const abandoned = (yield* events.abandoned).filter(({ session }) => sessions.peek(session) === undefined)
      if (abandoned.length === 0) return false
      yield* Effect.logInfo("Taking over sessions of a node that is gone").pipe(
        Effect.annotateLogs({ sessions: abandoned.length })
      )
      // What is left is found again.
      const left = yield* recoverAll(abandoned)
      for (const { session } of abandoned) if (sessions.peek(session) !== undefined) takeovers.unsafeUpdate(1, tags)
      return left.length < abandoned.length
    })
    const takeOver = Effect.repeat(takeOverPortion, { while: goesOn => goesOn })

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
      yield* Supervision.within(saveLimit, records.flush)
      // What is left of one that could not be stopped is for a node that recovers it.
      const left = Duration.toMillis(stopping) - (monotonic() - startedAt)
      const limit = Math.max(left, Duration.toMillis(stopping) * leastHandover)
      yield* handover.give(session => sessions.peek(session)?.isQuiescent !== false, limit)
    })

    yield* Effect.addFinalizer(() => shutDown)
    // Recovery ends once, and is only started again where it fails.
    yield* Supervision.forkIn("recovery of sessions", Effect.zipRight(recover, Effect.never), scope)
    if (events.isShared) {
      MetricTags.register([takeovers], tags)
      const outage = Supervision.outage("taking sessions over")
      const once = Effect.matchCauseEffect(takeOver, { onFailure: outage.failed, onSuccess: () => outage.over })
      yield* Supervision.forkIn("taking sessions over", Effect.repeat(once, Schedule.spaced(sweepInterval)), scope)
    }
    yield* Supervision.forkIn("watch over sessions", Supervision.tick(sweepInterval, sessions, sweep), scope)
  })
