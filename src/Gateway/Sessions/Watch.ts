/**
 * What happens to sessions without anybody asking: those of an earlier run are recovered, idle ones stopped, and all of
 * them when the gateway ends.
 */
import { Duration, Effect, Schedule, type Scope } from "effect"
import * as Session from "../Session.ts"
import type { Shared } from "./Entity.ts"
import * as Lifecycle from "./Lifecycle.ts"
import type { Loaded } from "./Loading.ts"
import type { Records } from "./Records.ts"
import { rest, shutdownLimit, sweepInterval } from "./Settings.ts"

/** Sessions that are recovered at once after a restart. */
const recoveries = 8

/** Watches over sessions until the scope closes; `close` is called before they are stopped. */
export const start = (
  shared: Shared,
  loaded: Loaded,
  records: Records,
  close: () => void
): Effect.Effect<void, never, Scope.Scope> =>
  Effect.gen(function* () {
    const sweep = Effect.suspend(() => {
      const now = shared.now()
      const idle = now - Duration.toMillis(shared.settings.idleTimeout)
      const spare = now - Duration.toMillis(rest)
      return Effect.forEach(
        [...loaded.all()],
        entity =>
          Effect.gen(function* () {
            if (entity.isIdleSince(idle)) {
              yield* Effect.logInfo("A session is idle and is stopped").pipe(
                Effect.annotateLogs({ session: entity.key })
              )
              yield* Effect.forkIn(Effect.ignore(Lifecycle.stop(entity, "idle")), shared.scope)
            } else yield* Lifecycle.tidy(entity)
            if (!entity.isSpare() || entity.idleSince > spare) return
            if (entity.isDeleted) yield* Effect.ignore(shared.events.remove(entity.key))
            loaded.forget(entity)
          }),
        { discard: true }
      )
    })

    /** An instance whose session's record is gone: nobody else will ever ask for it. */
    const abandon = (session: string, bookmark: string) =>
      Effect.gen(function* () {
        const { lease } = yield* Session.fromBookmark("inactive", bookmark)
        if (lease?.instanceId != null) yield* shared.platform.stop(lease.instanceId)
        yield* shared.events.remove(session)
      })

    const recover = Effect.gen(function* () {
      const unfinished = yield* shared.events.unfinished
      if (unfinished.length === 0) return
      yield* Effect.logInfo("Recovering sessions of the gateway's last run").pipe(
        Effect.annotateLogs({ sessions: unfinished.length })
      )
      yield* Effect.forEach(
        unfinished,
        ({ session, bookmark }) => {
          const slash = session.indexOf("/")
          return loaded.get(session.slice(0, slash), session.slice(slash + 1)).pipe(
            Effect.flatMap(Lifecycle.tidy),
            Effect.catchTag("SessionNotFound", () => abandon(session, bookmark)),
            Effect.catchAll(error =>
              Effect.logWarning("A session of the gateway's last run could not be recovered yet").pipe(
                Effect.annotateLogs({ session, reason: error.message })
              )
            )
          )
        },
        { concurrency: recoveries, discard: true }
      )
    })

    const shutDown = Effect.gen(function* () {
      close()
      const entities = [...loaded.all()].filter(
        entity => entity.isRunning || entity.errand !== undefined || entity.journal.standing().lease !== null
      )
      if (entities.length > 0) {
        yield* Effect.logInfo("Stopping sessions").pipe(Effect.annotateLogs({ sessions: entities.length }))
      }
      yield* Effect.forEach(entities, entity => Effect.ignore(Lifecycle.stop(entity, "the gateway is shutting down")), {
        concurrency: "unbounded",
        discard: true
      }).pipe(Effect.interruptible, Effect.timeoutOption(shutdownLimit))
      yield* records.flush
    })

    yield* Effect.addFinalizer(() => shutDown)
    yield* Effect.forkIn(
      Effect.catchAllCause(recover, cause => Effect.logError("Sessions of the last run could not be recovered", cause)),
      shared.scope
    )
    yield* Effect.forkIn(
      Effect.repeat(
        Effect.catchAllCause(sweep, cause => Effect.logError("The watch over sessions stumbled", cause)),
        Schedule.spaced(sweepInterval)
      ),
      shared.scope
    )
  })
