/** Repeats requests while the service is away. */
import { Duration, Effect, Schedule } from "effect"
import type { ClientError } from "../EffectClient/Errors.ts"
import * as Monotonic from "../Monotonic.ts"

/**
 * Statuses by which proxies say that the service is away, or has too much to do; and 409, by which the service says that
 * it has not finished a request that was sent before.
 */
const passing = new Set([409, 429, 502, 503, 504])

/** Whether a later try may do better. */
export const isPassing = (error: ClientError): boolean =>
  error._tag === "ConnectionFailed" || ("status" in error && passing.has(error.status))

/** How long the service asks to wait. */
const askedPause = (error: ClientError): Duration.Duration =>
  Duration.millis("retryAfterMs" in error ? (error.retryAfterMs ?? 0) : 0)

/**
 * Repeats a request that fails with what may pass: after exponential backoff up to 5 s, or the pause that the failure
 * asks for. No try begins later than `giveUpAfter` after the first.
 */
export const untilBack =
  <E>(
    giveUpAfter: Duration.DurationInput,
    failures: {
      readonly isPassing: (error: E) => boolean
      readonly pauseOf: (error: E) => Duration.Duration
      /** Is told of each failure after which there is another try. */
      readonly onRetry: (error: E) => Effect.Effect<void>
    }
  ) =>
  <A, R>(request: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.flatMap(Monotonic.millis, startedAt =>
      Effect.retry(request, {
        schedule: Schedule.exponential("100 millis").pipe(
          Schedule.jittered,
          Schedule.modifyDelay((_, delay) => Duration.min(delay, Duration.seconds(5))),
          Schedule.intersect(Schedule.identity<E>()),
          Schedule.modifyDelay(([, error], delay) => Duration.max(delay, failures.pauseOf(error)))
        ),
        while: error =>
          Effect.flatMap(Monotonic.millis, now =>
            failures.isPassing(error) && now - startedAt < Duration.toMillis(giveUpAfter)
              ? Effect.as(failures.onRetry(error), true)
              : Effect.succeed(false)
          )
      })
    )

/** Repeats a request that is safe to repeat. The user gets one line for each outage, not for each try. */
export const retryWhileAway =
  (giveUpAfter: Duration.DurationInput, note: (text: string) => Effect.Effect<void>) =>
  <A, R>(request: Effect.Effect<A, ClientError, R>): Effect.Effect<A, ClientError, R> =>
    Effect.suspend(() => {
      let isTold = false
      const onRetry = ({ message }: ClientError) =>
        Effect.suspend(() => {
          if (isTold) return Effect.void
          isTold = true
          return note(`${message}. Trying again.`)
        })
      return untilBack<ClientError>(giveUpAfter, { isPassing, pauseOf: askedPause, onRetry })(request)
    })
