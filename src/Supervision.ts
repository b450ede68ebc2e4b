/**
 * Supervision of background fibers and finalizers. A background fiber that ends is logged and restarted. A finalizer has
 * a time limit.
 */
import { Cause, Duration, Effect, Exit, type Option, type Scope } from "effect"

/** Milliseconds before a restart: exponential backoff from `first` to `most`. */
const pauses = { first: 100, most: 10_000 } as const

/** A run of at least so many milliseconds resets the backoff. */
const healthyMillis = 60_000

/**
 * Runs `work` until it is interrupted. If it ends otherwise, successfully or not, the end is logged under `name` and the
 * work is restarted after a pause.
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

/** Runs `work` in the current scope as `forever` does. */
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
 * Runs `work` for at most `limit`, also within a finalizer, which is uninterruptible otherwise. At the limit `work` is
 * interrupted, and the interruption is not awaited, since it may take long.
 */
export const within = <A, E, R>(
  limit: Duration.DurationInput,
  work: Effect.Effect<A, E, R>
): Effect.Effect<Option.Option<A>, E, R> => Effect.timeoutOption(Effect.interruptible(Effect.disconnect(work)), limit)
