/**
 * Which failures are retried, and after what delay.
 */
import { Duration, Effect, Schedule } from "effect"
import type { UpstreamFailure } from "./UpstreamFailure.ts"

/** Tries of one call, with the first. */
export const tries = 3

const firstDelay = Duration.millis(200)

/** The longest delay, of ours or by `Retry-After`. */
export const longestDelay = Duration.seconds(10)

const transientStatuses: ReadonlySet<number> = new Set([408, 429, 502, 503, 504])

export const isTransient = ({ reason, statusCode }: UpstreamFailure): boolean =>
  reason === "connection" ||
  reason === "timeout" ||
  (reason === "status" && statusCode !== undefined && transientStatuses.has(statusCode))

/**
 * Exponential delays from 200 ms to 10 s, with full jitter from Effect's Random.
 */
export const backoff: Schedule.Schedule<Duration.Duration> = Schedule.exponential(firstDelay, 2).pipe(
  Schedule.modifyDelay((_, delay) => Duration.min(delay, longestDelay)),
  Schedule.jitteredWith({ min: 0, max: 1 })
)

/** Whether the upstream asks for a longer delay than ours. */
const asksTooMuch = ({ retryAfterMillis }: UpstreamFailure): boolean =>
  retryAfterMillis !== undefined && retryAfterMillis > Duration.toMillis(longestDelay)

/**
 * The retries of one call.
 *
 * A delay by `Retry-After` is added to the jittered one, so that callers do not return all at once; one of more than
 * 10 s ends the call. `allowed` is the last condition, and run once for each retry.
 */
export const retries = (
  allowed: (failure: UpstreamFailure, delayMillis: number) => Effect.Effect<boolean>
): Schedule.Schedule<unknown, UpstreamFailure> =>
  backoff.pipe(
    Schedule.intersect(Schedule.identity<UpstreamFailure>()),
    Schedule.addDelay(([, failure]) => Duration.millis(failure.retryAfterMillis ?? 0)),
    Schedule.delays,
    Schedule.intersect(Schedule.recurs(tries - 1)),
    Schedule.checkEffect((failure, [delay]) =>
      isTransient(failure) && !asksTooMuch(failure) ? allowed(failure, Duration.toMillis(delay)) : Effect.succeed(false)
    )
  )

/** The delay of a `Retry-After` header (RFC 9110, 10.2.3), in milliseconds, if it is valid. */
export const parseRetryAfter = (header: string | undefined, now: number): number | undefined => {
  const text = header?.trim() ?? ""
  if (/^\d{1,9}$/.test(text)) return Number(text) * 1000
  const date = /^[A-Za-z]{3,9},? /.test(text) ? Date.parse(text) : Number.NaN
  return Number.isNaN(date) ? undefined : Math.max(0, date - now)
}
