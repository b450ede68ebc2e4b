/**
 * Supervision of background fibers and finalizers. A background fiber that ends is logged and restarted. Of work that
 * fails for a while, the first failure and the recovery are logged. A finalizer has a timeout.
 */
import { Cause, Duration, Effect, Exit, type Fiber, FiberId, Option, Schedule, Scope } from "effect"
import { Backoff } from "./Time/Backoff.ts"
import * as Monotonic from "./Time/Monotonic.ts"

/** Milliseconds before a restart. */
const pauses = { first: 100, longest: 10_000 } as const

/** A run of at least this many milliseconds resets the backoff. */
const healthyMillis = 60_000

/**
 * Runs `work` until it is interrupted. If it ends otherwise, successfully or not, the end is logged under `name` and
 * the work is restarted after a pause.
 */
export const forever = <E, R>(name: string, work: Effect.Effect<unknown, E, R>): Effect.Effect<never, never, R> => {
  const run = (backoff: Backoff): Effect.Effect<never, never, R> =>
    Effect.flatMap(Effect.timed(Effect.exit(work)), ([elapsed, exit]) => {
      if (Exit.isFailure(exit) && Cause.isInterruptedOnly(exit.cause)) return Effect.interrupt
      const cause = Exit.isFailure(exit) ? exit.cause : Cause.empty
      if (Duration.toMillis(elapsed) >= healthyMillis) backoff.reset()
      const wait = backoff.next()
      return Effect.logError("A background task ended and is started again", cause).pipe(
        Effect.annotateLogs({ task: name, pauseMillis: wait }),
        Effect.zipRight(Effect.sleep(wait)),
        Effect.zipRight(Effect.suspend(() => run(backoff)))
      )
    })
  return Effect.suspend(() => run(new Backoff(pauses.first, pauses.longest)))
}

/** Milliseconds between two interruptions of the same fiber. */
const interruptInterval = 100

/**
 * Interrupts a fiber and waits for its end. The interruption is repeated: Effect 3.22 loses one that arrives while the
 * fiber runs a finalizer of a scope that has several, and a fiber that continues after that, as a loop does, would never
 * end.
 */
const interruptUntilEnded = <A, E>(fiber: Fiber.RuntimeFiber<A, E>): Effect.Effect<void> =>
  Effect.async(resume => {
    const interrupt = (): void => fiber.unsafeInterruptAsFork(FiberId.none)
    const timer = setInterval(interrupt, interruptInterval)
    fiber.addObserver(() => {
      clearInterval(timer)
      resume(Effect.void)
    })
    interrupt()
  })

/** Runs `work` in a fiber, which the end of `scope` interrupts for certain, and awaits. */
export const forkUntilClosed = <A, E, R>(
  work: Effect.Effect<A, E, R>,
  scope: Scope.Scope
): Effect.Effect<void, never, R> =>
  Effect.uninterruptible(
    Effect.flatMap(Effect.forkDaemon(Effect.interruptible(work)), fiber =>
      Scope.addFinalizer(
        scope,
        // The work may close the scope itself.
        Effect.fiberIdWith(id => (id === fiber.id() ? Effect.void : interruptUntilEnded(fiber)))
      )
    )
  )

/**
 * Runs an effect, and `end` when the scope closes. `Effect.acquireRelease` would keep the references of the fiber until
 * then, which are kilobytes for each subscription.
 */
export const untilClosed = <A, E, R>(
  begin: Effect.Effect<A, E, R>,
  end: (begun: A) => void
): Effect.Effect<A, E, R | Scope.Scope> =>
  Effect.flatMap(Effect.scope, scope =>
    Effect.uninterruptible(
      Effect.tap(begin, begun =>
        Scope.addFinalizer(
          scope,
          Effect.sync(() => end(begun))
        )
      )
    )
  )

/** Runs `work` in `scope` as `forever` does. */
export const forkIn = <E, R>(
  name: string,
  work: Effect.Effect<unknown, E, R>,
  scope: Scope.Scope
): Effect.Effect<void, never, R> => forkUntilClosed(forever(name, work), scope)

/** Runs `work` in the current scope as `forever` does. */
export const forkScoped = <E, R>(
  name: string,
  work: Effect.Effect<unknown, E, R>
): Effect.Effect<void, never, R | Scope.Scope> => Effect.flatMap(Effect.scope, scope => forkIn(name, work, scope))

/**
 * Runs `work` for at most `limit`, also within a finalizer, which is otherwise uninterruptible. At the limit `work` is
 * interrupted, and the interruption is not awaited because it may take long.
 */
export const within = <A, E, R>(
  limit: Duration.DurationInput,
  work: Effect.Effect<A, E, R>
): Effect.Effect<Option.Option<A>, E, R> => Effect.timeoutOption(Effect.interruptible(Effect.disconnect(work)), limit)

/** The failure of an operation that is tried again later. */
interface Failure {
  readonly reason: string
}

/** Logs the first failure of an operation that is tried again and again, and its recovery. */
export interface Outage {
  /** The operation failed. An interruption is not a failure. */
  readonly failed: (cause: Cause.Cause<Failure>) => Effect.Effect<void>
  /** The operation succeeded. */
  readonly over: Effect.Effect<void>
}

/** An outage that starts within so many milliseconds of the last failure ends only so long after its own last one. */
const outageInterval = 10_000

/**
 * Logs the start of an outage as a warning with the reason, and its end. A defect is logged as an error, once in an
 * outage, also after a failure. If some operations fail and others succeed, as on a disk that has room for small writes
 * only, the outage does not end in between.
 */
export const outage = (operation: string): Outage => {
  let logged: "nothing" | "failure" | "defect" = "nothing"
  let failedAt = Number.NEGATIVE_INFINITY
  let recurs = false
  return {
    failed: cause =>
      Effect.flatMap(Monotonic.millis, now => {
        if (Cause.isInterruptedOnly(cause)) return Effect.void
        const failure = Cause.failureOption(cause)
        if (Option.isNone(failure)) {
          if (logged === "defect") return Effect.void
          logged = "defect"
          return Effect.logError(`${operation} met a defect`, cause)
        }
        if (logged === "nothing") recurs = now < failedAt + outageInterval
        failedAt = now
        if (logged !== "nothing") return Effect.void
        logged = "failure"
        const { reason } = failure.value
        return Effect.annotateLogs(Effect.logWarning(`${operation} fails until the store is back`), { reason })
      }),
    over: Effect.suspend(() => {
      if (logged === "nothing") return Effect.void
      return Effect.flatMap(Monotonic.millis, now => {
        if (recurs && now < failedAt + outageInterval) return Effect.void
        logged = "nothing"
        return Effect.logInfo(`${operation} works again`)
      })
    })
  }
}

/** Repeats `work` in the current scope, with a pause after each run. It logs outages, and continues after them. */
export const repeatScoped = <R>(
  name: string,
  pause: Duration.DurationInput,
  work: Effect.Effect<unknown, Failure, R>
): Effect.Effect<void, never, R | Scope.Scope> => repeatWhenDueScoped(name, pause, Effect.as(work, Effect.void))

/** {@link repeatScoped} for work that returns an effect that waits for more work, which runs before the pause. */
export const repeatWhenDueScoped = <R>(
  name: string,
  pause: Duration.DurationInput,
  work: Effect.Effect<Effect.Effect<void>, Failure, R>
): Effect.Effect<void, never, R | Scope.Scope> => {
  const { failed, over } = outage(name)
  const run = Effect.matchCauseEffect(work, {
    onFailure: cause => Effect.as(failed(cause), Effect.void),
    onSuccess: due => Effect.as(over, due)
  })
  return forkScoped(name, Effect.repeat(Effect.flatten(run), Schedule.spaced(pause)))
}

/** Whether anything must be checked periodically. */
export class Occupancy {
  readonly #latch = Effect.unsafeMakeLatch(false)

  set(isOccupied: boolean): void {
    if (isOccupied) this.#latch.unsafeOpen()
    else this.#latch.unsafeClose()
  }

  /** Waits until it is occupied. */
  get occupied(): Effect.Effect<void> {
    return this.#latch.await
  }
}

/**
 * Runs `work` after each interval while the {@link Occupancy} is occupied. Otherwise no timer is set, and a
 * test that lets hours pass does not run through each interval.
 */
export const tick = <R>(
  interval: Duration.DurationInput,
  { occupied }: { readonly occupied: Effect.Effect<void> },
  work: Effect.Effect<void, never, R>
): Effect.Effect<never, never, R> =>
  Effect.forever(occupied.pipe(Effect.zipRight(Effect.sleep(interval)), Effect.zipRight(work)))

/** Runs {@link tick} in the current scope as `forever` does. */
export const tickScoped = <R>(name: string, ...args: Parameters<typeof tick<R>>) => forkScoped(name, tick(...args))
