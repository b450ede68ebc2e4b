/** Retries requests while the service is unavailable, and writes that are applied once however often they are sent. */
import { randomUUID } from "node:crypto"
import { Duration, Effect, Option, Schedule } from "effect"
import * as Monotonic from "../base/Monotonic.ts"
import type { ClientError } from "../Client/Effect/Client.ts"
import { type CommandFailed, wrong } from "./CommandFailed.ts"
import { numberOption, text } from "./CommandOptions.ts"
import type { Connection } from "./Connection.ts"
import * as Failure from "./Failure.ts"
import { Output } from "./Terminal/Output.ts"

/** The option of the commands that retry by default. */
export const retryForOption = numberOption(
  "retry-for",
  "seconds",
  "How long to retry while the service is unavailable",
  60
)

/** The value of `--retry-for`. Fails with exit code 2 if it is negative. */
export const durationOf = (seconds: number): Effect.Effect<Duration.Duration, CommandFailed> =>
  seconds < 0 ? wrong("--retry-for must be 0 or more") : Effect.succeed(Duration.seconds(seconds))

/**
 * Statuses of a service that is unavailable or overloaded, also of a proxy before it; and 409, which the service sends
 * while an earlier request with the same idempotency key is still in progress.
 */
const retryableStatuses = new Set([409, 429, 502, 503, 504])

/** Whether a later attempt may succeed. */
export const isRetryable = (error: ClientError): boolean =>
  error._tag === "ConnectionFailed" || ("status" in error && retryableStatuses.has(error.status))

/** How long the service asks to wait. */
const retryAfter = (error: ClientError): Duration.Duration =>
  Duration.millis("retryAfterMs" in error ? (error.retryAfterMs ?? 0) : 0)

/** Which failures are retried, and how. */
export interface RetryPolicy<E> {
  readonly isRetryable: (error: E) => boolean
  /** The minimum wait before the next attempt. */
  readonly retryAfter: (error: E) => Duration.Duration
  /** Runs after each failure that is retried. */
  readonly onRetry: (error: E) => Effect.Effect<void>
}

/**
 * Retries an effect with exponential backoff and jitter, of 5 s at most, or after the wait that the failure asks for. No
 * attempt starts later than `duration` after the first.
 */
export const retryFor =
  <E>(duration: Duration.DurationInput, policy: RetryPolicy<E>) =>
  <A, R>(request: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.flatMap(Monotonic.millis, startedAt =>
      Effect.retry(request, {
        schedule: Schedule.exponential("100 millis").pipe(
          Schedule.jittered,
          Schedule.modifyDelay((_, delay) => Duration.min(delay, Duration.seconds(5))),
          Schedule.intersect(Schedule.identity<E>()),
          Schedule.modifyDelay(([, error], delay) => Duration.max(delay, policy.retryAfter(error)))
        ),
        while: error =>
          Effect.flatMap(Monotonic.millis, now =>
            policy.isRetryable(error) && now - startedAt < Duration.toMillis(duration)
              ? Effect.as(policy.onRetry(error), true)
              : Effect.succeed(false)
          )
      })
    )

/** Retries an idempotent request. Writes one line for each outage, not for each attempt. */
export const retryWhileUnavailable =
  (duration: Duration.DurationInput, note: (text: string) => Effect.Effect<void>) =>
  <A, R>(request: Effect.Effect<A, ClientError, R>): Effect.Effect<A, ClientError, R> =>
    Effect.suspend(() => {
      let isReported = false
      const onRetry = ({ message }: ClientError) =>
        Effect.suspend(() => {
          if (isReported) return Effect.void
          isReported = true
          return note(`${message}. Trying again.`)
        })
      return retryFor<ClientError>(duration, { isRetryable, retryAfter, onRetry })(request)
    })

/** The options of every command with one idempotent write. */
export const writeOptions = {
  idempotencyKey: text("idempotency-key", "The Idempotency-Key of this write; default a random one", "key"),
  retryFor: numberOption(
    "retry-for",
    "seconds",
    "How long to retry while the service is unavailable; the write is applied once",
    0
  )
}

/** The values of {@link writeOptions}. */
interface Given {
  readonly idempotencyKey: Option.Option<string>
  /** Seconds. */
  readonly retryFor: number
}

const quoted = (key: string): string => (/^[\w-]+$/.test(key) ? key : `'${key.replaceAll("'", "'\\''")}'`)

/**
 * Runs a write with an idempotency key and retries it while the service is unavailable. The message of a failure with
 * unknown outcome contains the key, so that the user can repeat the write.
 */
export const once = <A>(
  connection: Connection,
  { idempotencyKey, retryFor }: Given,
  write: (options: { readonly idempotencyKey: string }) => Effect.Effect<A, ClientError>
): Effect.Effect<A, CommandFailed, Output> =>
  Effect.gen(function* () {
    const duration = yield* durationOf(retryFor)
    const key = Option.isSome(idempotencyKey) ? idempotencyKey.value : randomUUID()
    const { note } = yield* Output
    return yield* write({ idempotencyKey: key }).pipe(
      retryWhileUnavailable(duration, note),
      Effect.mapError(
        Failure.of(connection, `with --idempotency-key ${quoted(key)} it can be repeated, and is applied once`)
      )
    )
  })
