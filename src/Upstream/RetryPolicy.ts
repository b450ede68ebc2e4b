/**
 * Which failures are worth another try, and after what wait.
 */
import { Duration, Effect, Schedule } from "effect"
import type { UpstreamFailure } from "./UpstreamFailure.ts"

/** Tries of one call, the first included. */
export const tries = 3

const firstDelay = Duration.millis(200)

/** No wait is longer: neither one of ours nor one that an upstream asks for. */
export const longestDelay = Duration.seconds(10)

const transientStatuses: ReadonlySet<number> = new Set([408, 429, 502, 503, 504])

/** Whether a failure may pass by itself. */
export const isTransient = ({ reason, statusCode }: UpstreamFailure): boolean =>
  reason === "connection" ||
  reason === "timeout" ||
  (reason === "status" && statusCode !== undefined && transientStatuses.has(statusCode))

/**
 * Waits of 200 ms, doubling to at most 10 s, each with full jitter: any time from none to the whole of it.
 * Chance comes from Effect's Random.
 */
export const backoff: Schedule.Schedule<Duration.Duration> = Schedule.exponential(firstDelay, 2).pipe(
  Schedule.modifyDelay((_, delay) => Duration.min(delay, longestDelay)),
  Schedule.jitteredWith({ min: 0, max: 1 })
)

/** Whether the upstream asks for a longer wait than a caller is kept for: trying earlier would be no courtesy. */
const asksTooMuch = ({ retryAfterMillis }: UpstreamFailure): boolean =>
  retryAfterMillis !== undefined && retryAfterMillis > Duration.toMillis(longestDelay)

/**
 * The retries of one call.
 *
 * A wait that the upstream asks for (`Retry-After`) comes on top of the jittered one, so that the callers do not
 * all return at the same instant; one of more than 10 s ends the call. `allowed` is asked last of all, once for
 * each retry that would take place, and told the wait in milliseconds.
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

/** The wait that a `Retry-After` header asks for (RFC 9110, 10.2.3), in milliseconds; nothing if it cannot be read. */
export const parseRetryAfter = (header: string | undefined, now: number): number | undefined => {
  const text = header?.trim() ?? ""
  if (/^\d{1,9}$/.test(text)) return Number(text) * 1000
  const date = /^[A-Za-z]{3,9},? /.test(text) ? Date.parse(text) : Number.NaN
  return Number.isNaN(date) ? undefined : Math.max(0, date - now)
}
