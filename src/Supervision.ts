/**
 * Work that nobody awaits in person. What has to go on for as long as its scope is logged where it fails and starts
 * again; what has to end with its scope ends within a limit.
 */
import { Cause, Duration, Effect, Exit, type Option, type Scope } from "effect"

/** The pause before a restart: it doubles with each failure in a row, up to `most`. */
const pauses = { first: 100, most: 10_000 } as const

/** A run at least this long, in milliseconds, was a healthy one: the next pause is the shortest again. */
const healthyMillis = 60_000

/**
 * Runs `work` until it is interrupted. An end that nobody asked for, successful or not, is logged with its cause under
 * `name`, and after a pause the work runs again.
 */
export const forever = <E, R>(name: string, work: Effect.Effect<unknown, E, R>): Effect.Effect<never, never, R> => {
  const run = (pause: number): Effect.Effect<never, never, R> =>
    Effect.flatMap(Effect.timed(Effect.exit(work)), ([elapsed, exit]) => {
      if (Exit.isFailure(exit) && Cause.isInterruptedOnly(exit.cause)) return Effect.interrupt
      const cause = Exit.isFailure(exit) ? exit.cause : Cause.empty
      const wait = Duration.toMillis(elapsed) >= healthyMillis ? pauses.first : pause
      return Effect.logError("A background task ended and is started again", cause).pipe(
        Effect.annotateLogs({ task: name, pauseMillis: wait }),
        Effect.zipRight(Effect.sleep(wait)),
        Effect.zipRight(Effect.suspend(() => run(Math.min(wait * 2, pauses.most))))
      )
    })
  return run(pauses.first)
}

/** Runs `work` in the scope at hand as `forever` does. */
export const forkScoped = <E, R>(
  name: string,
  work: Effect.Effect<unknown, E, R>
): Effect.Effect<void, never, R | Scope.Scope> =>
  Effect.asVoid(Effect.forkScoped(Effect.interruptible(forever(name, work))))

/** Runs `work` in `scope` as `forever` does. */
export const forkIn = <E, R>(
  name: string,
  work: Effect.Effect<unknown, E, R>,
  scope: Scope.Scope
): Effect.Effect<void, never, R> => Effect.asVoid(Effect.forkIn(Effect.interruptible(forever(name, work)), scope))

/**
 * Runs `work` for no longer than `limit`, also within a finalizer, where nothing could be interrupted otherwise. What
 * it has not done by then is interrupted, and that is not waited for: it may be in a region that takes long.
 */
export const within = <A, E, R>(
  limit: Duration.DurationInput,
  work: Effect.Effect<A, E, R>
): Effect.Effect<Option.Option<A>, E, R> => Effect.timeoutOption(Effect.interruptible(Effect.disconnect(work)), limit)
