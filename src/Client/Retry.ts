/** Whether a failed attempt is repeated, and when. */
import type { ClientError } from "./Errors.ts"
import type { Requests } from "./Requests.ts"
import type { Clock } from "./Time.ts"

/** The bounds of the first and of the longest pause, in milliseconds. */
const firstPause = 1000
const longestPause = 30_000

/** The maximum `Retry-After` in milliseconds: a timer of more than 24 days would fire at once. */
const longestRetryAfter = 3_600_000

/**
 * Exponential backoff with full jitter: clients that lost their connections at the same time do not reconnect at the same
 * time.
 */
export class Backoff {
  #attempts = 0

  constructor(private readonly clock: Clock) {}

  /** The next pause in milliseconds; at least what the service asks for. */
  next(retryAfterMs = 0): number {
    const bound = Math.min(longestPause, firstPause * 2 ** this.#attempts++)
    return Math.min(retryAfterMs, longestRetryAfter) + this.clock.random() * bound
  }

  reset(): void {
    this.#attempts = 0
  }
}

/** Whether the same request may succeed later. */
export const isTransient = (error: ClientError): boolean => {
  switch (error._tag) {
    case "ConnectionFailed":
    case "TokenUnavailable":
    case "Conflict":
    case "InternalServerError":
    case "ServiceUnavailable":
      return true
    case "InvalidResponse":
      return error.status < 400 || error.status === 408 || error.status === 429 || error.status >= 500
    default:
      return false
  }
}

/** A connection that lasts this long resets the backoff, in milliseconds. */
const stableMs = 60_000

/** The retries of consecutive connections. */
export class Retries extends Backoff {
  /** Whether the last token was refused. */
  #isRefused = false

  constructor(private readonly requests: Requests) {
    super(requests.clock)
  }

  /** The pause after a failure in milliseconds, or `undefined` if it is permanent. */
  after(error: ClientError): number | undefined {
    // A new token may succeed. It is tried once.
    const mayRenew = error._tag === "Unauthorized" && this.requests.isTokenRenewable && !this.#isRefused
    if (!mayRenew && !isTransient(error)) return undefined
    this.#isRefused = mayRenew
    return this.next("retryAfterMs" in error ? error.retryAfterMs : undefined)
  }

  /** To be called when the service has accepted the token. */
  accepted(): void {
    this.#isRefused = false
  }

  /** To be called at the end of a connection that began at this time. */
  ended(startedAt: number): void {
    if (this.requests.clock.now() - startedAt > stableMs) this.reset()
  }
}
