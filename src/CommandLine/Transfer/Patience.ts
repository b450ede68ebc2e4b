/** Repeats requests while the service is away. */
import { Duration, Effect, Schedule } from "effect"
import type { ClientError } from "../../EffectClient/Errors.ts"

/** Statuses by which proxies say that the service is away, or has too much to do. */
const passing = new Set([429, 502, 503, 504])

/** Whether a later try may do better. */
export const isPassing = (error: ClientError): boolean =>
  error._tag === "ConnectionFailed" || ("status" in error && passing.has(error.status))

/** How long the service asks to wait. */
export const askedPause = (error: ClientError): Duration.Duration =>
  Duration.millis("retryAfterMs" in error ? (error.retryAfterMs ?? 0) : 0)

/** Exponential backoff up to 5 s, or the pause that the service asks for, until the time limit. */
export const comesBack = <E>(
  giveUpAfter: Duration.DurationInput,
  pauseOf: (error: E) => Duration.Duration
): Schedule.Schedule<unknown, E> =>
  Schedule.exponential("100 millis").pipe(
    Schedule.jittered,
    Schedule.modifyDelay((_, delay) => Duration.min(delay, Duration.seconds(5))),
    Schedule.intersect(Schedule.identity<E>()),
    Schedule.modifyDelay(([, error], delay) => Duration.max(delay, pauseOf(error))),
    Schedule.upTo(giveUpAfter)
  )

/** Repeats a request that is safe to repeat. */
export const patiently =
  (giveUpAfter: Duration.DurationInput, onAway: (error: ClientError) => Effect.Effect<void>) =>
  <A, R>(request: Effect.Effect<A, ClientError, R>): Effect.Effect<A, ClientError, R> =>
    request.pipe(
      Effect.tapError(error => (isPassing(error) ? onAway(error) : Effect.void)),
      Effect.retry({ schedule: comesBack(giveUpAfter, askedPause), while: isPassing })
    )
