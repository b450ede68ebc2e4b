/**
 * What happens to sessions without anybody asking: those of an earlier run are recovered, idle ones stopped, and all of
 * them when the gateway ends.
 */
import { Cause, Duration, Effect, Option, Schedule, type Scope } from "effect"
import * as Supervision from "../../Supervision.ts"
import type { Unfinished } from "../SessionEvents.ts"
import type { Entity, Shared } from "./Entity.ts"
import { pause, payNow, postponePayment } from "./InstanceCleanup.ts"
import * as Lifecycle from "./InstanceLifecycle.ts"
import type { Loaded } from "./SessionCache.ts"
import type { Records } from "./SessionRecords.ts"
import { rest, sweepInterval } from "./Settings.ts"

/** Sessions that are recovered at once after a restart. */
const recoveries = 8

/** Waits between two looks at what the last run has left, as long as the store is away. */
const recoveryPauses = Schedule.spaced("5 seconds")

/** How long the last records may take to be written; a commit that does not come back is given up before. */
const saving = Duration.seconds(2)

/** Whether anything of a session may live at the platform. */
const owes = (entity: Entity): boolean => {
  const { pendingStops, instance } = entity.journal.state()
  return instance !== null || pendingStops.length > 0
}

const tidied = (entity: Entity | undefined): Effect.Effect<void> =>
  entity === undefined ? Effect.void : Lifecycle.tidy(entity)

/** Watches over sessions until the scope closes; `close` is called before they are stopped. */
export const start = (
  shared: Shared,
  loaded: Loaded,
  records: Records,
  close: () => void
): Effect.Effect<void, never, Scope.Scope> =>
  Effect.gen(function* () {
    const sweep = Effect.suspend(() => {
      const now = shared.monotonic()
      const idle = now - Duration.toMillis(shared.settings.idleTimeout)
      const spare = now - Duration.toMillis(rest)
      return Effect.forEach(
        [...loaded.all()],
        entity =>
          Effect.gen(function* () {
            if (entity.isIdleSince(idle) && !entity.journal.isLost()) {
              yield* Effect.logInfo("A session is idle and is stopped").pipe(
                Effect.annotateLogs({ session: entity.key })
              )
              yield* Effect.forkIn(Effect.ignore(Lifecycle.stop(entity, "idle", false)), shared.scope)
            } else yield* Lifecycle.tidy(entity)
            if (!entity.isSpare()) return
            if (entity.isDeleted) yield* shared.events.remove(entity.key)
            else if (entity.idleSince > spare) return
            loaded.forget(entity)
          }).pipe(
            Effect.ignore,
            // One session that meets a bug keeps no other from being looked after.
            Effect.catchAllDefect(defect =>
              Effect.logError("The watch over a session stumbled", Cause.die(defect)).pipe(
                Effect.annotateLogs({ session: entity.key })
              )
            )
          ),
        { discard: true }
      )
    })

    /**
     * Whether the agent platform cannot be reached. An instance never survives its gateway, so nothing of it is waited
     * for; but it can be given back only to a platform that is there.
     */
    const isPlatformAway = Effect.map(
      shared.platform.probe,
      Option.exists(({ status }) => status === "unhealthy")
    )

    /** Takes a session of the last run into care, or answers it where that must be tried again. */
    const recoverOne = (unfinished: Unfinished, isAway: boolean): Effect.Effect<ReadonlyArray<Unfinished>> => {
      const { bookmark, session } = unfinished
      const slash = session.indexOf("/")
      const [tenant, id] = [session.slice(0, slash), session.slice(slash + 1)]
      // Whatever is in memory is looked after there.
      if (loaded.peek(tenant, id) !== undefined) return Effect.succeed([])
      return loaded.get(tenant, id).pipe(
        Effect.catchTag("SessionNotFound", () => loaded.adopt(tenant, id, bookmark)),
        Effect.zipRight(
          Effect.suspend(() => {
            const entity = loaded.peek(tenant, id)
            if (isAway && entity !== undefined) postponePayment(entity)
            return tidied(entity)
          })
        ),
        Effect.as([]),
        Effect.sandbox,
        Effect.mapError(Cause.squash),
        Effect.catchAll(error =>
          Effect.logWarning("A session of the gateway's last run could not be recovered yet").pipe(
            Effect.annotateLogs({ session, reason: error instanceof Error ? error.message : String(error) }),
            Effect.as([unfinished])
          )
        )
      )
    }

    const recover = Effect.gen(function* () {
      let left = yield* Effect.retry(shared.events.unfinished, recoveryPauses)
      if (left.length === 0) return
      yield* Effect.logInfo("Recovering sessions of the gateway's last run").pipe(
        Effect.annotateLogs({ sessions: left.length })
      )
      for (let tries = 1; ; tries++) {
        const isAway = yield* isPlatformAway
        if (isAway)
          yield* Effect.logWarning("The agent platform is away; instances of the last run are given back later")
        const round = Effect.forEach(left, session => recoverOne(session, isAway), { concurrency: recoveries })
        left = (yield* round).flat()
        if (left.length === 0) return
        yield* Effect.sleep(pause(tries))
      }
    })

    const shutDown = Effect.gen(function* () {
      close()
      const entities = [...loaded.all()].filter(
        entity => entity.isRunning || entity.errand !== undefined || owes(entity)
      )
      if (entities.length > 0) {
        yield* Effect.logInfo("Stopping sessions").pipe(Effect.annotateLogs({ sessions: entities.length }))
      }
      const { stopping } = shared.settings
      const end = (entity: Entity) =>
        Effect.zipRight(Effect.ignore(Lifecycle.stop(entity, "the gateway is shutting down")), payNow(entity, stopping))
      yield* Supervision.within(stopping, Effect.forEach(entities, end, { concurrency: "unbounded", discard: true }))
      yield* Supervision.within(saving, records.flush)
    })

    yield* Effect.addFinalizer(() => shutDown)
    // Recovery comes to an end, and is begun anew where it fails before that.
    yield* Supervision.forkIn("recovery of sessions", Effect.zipRight(recover, Effect.never), shared.scope)
    yield* Supervision.forkIn("watch over sessions", Effect.repeat(sweep, Schedule.spaced(sweepInterval)), shared.scope)
  })
