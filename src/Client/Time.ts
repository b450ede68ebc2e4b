/** Time limits, pauses, retries, and iterables that end at once when their reader returns. */
import { type ClientError, ConnectionFailed } from "./Errors.ts"

/** The clock, timers and random numbers. Tests replace them. */
export interface Clock {
  /** Monotonic milliseconds. */
  readonly now: () => number
  /** Calls back after some milliseconds, unless the returned function is called before. */
  readonly after: (ms: number, callback: () => void) => () => void
  /** A number from 0 to 1, less than 1. */
  readonly random: () => number
}

const longestTimer = 2 ** 31 - 1

export const systemClock: Clock = {
  now: () => performance.now(),
  after: (ms, callback) => {
    // A longer timer would fire at once. Time limits are checked again after it.
    const timer = setTimeout(callback, Math.min(ms, longestTimer))
    return () => clearTimeout(timer)
  },
  random: Math.random
}

export interface Limit {
  /** Restarts the time. It is cheap: it sets no timer. */
  readonly restart: () => void
  readonly cancel: () => void
}

/** A signal that aborts with its parent, after a time limit, or by {@link end}. */
export class Lifetime {
  readonly #controller = new AbortController()
  readonly #limits = new Set<Limit>()

  constructor(
    private readonly clock: Clock,
    private readonly parent: AbortSignal | undefined
  ) {
    if (parent?.aborted) this.#onAbort()
    parent?.addEventListener("abort", this.#onAbort)
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  /**
   * Aborts with {@link ConnectionFailed} after so many milliseconds. They count from now, from the latest `restart`, or
   * from `lastActivity` (monotonic milliseconds), whichever is the latest.
   */
  limit(ms: number, message: string, lastActivity: () => number = () => Number.NEGATIVE_INFINITY): Limit {
    const { after, now } = this.clock
    let begun = now()
    const check = () => {
      const left = Math.max(begun, lastActivity()) + ms - now()
      if (left > 0) cancelTimer = after(left, check)
      else this.#controller.abort(new ConnectionFailed(message, true))
    }
    let cancelTimer = this.signal.aborted ? () => {} : after(ms, check)
    const limit: Limit = {
      restart: () => {
        begun = now()
      },
      cancel: () => {
        this.#limits.delete(limit)
        cancelTimer()
      }
    }
    this.#limits.add(limit)
    return limit
  }

  /** Aborts the signal and cancels all limits. */
  end(reason?: unknown): void {
    for (const limit of this.#limits) limit.cancel()
    this.parent?.removeEventListener("abort", this.#onAbort)
    this.#controller.abort(reason)
  }

  readonly #onAbort = (): void => this.#controller.abort(this.parent?.reason)
}

/** Rejects when the signal aborts before the promise settles. */
export const abortable = <A>(promise: Promise<A>, signal: AbortSignal): Promise<A> =>
  new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason)
    if (signal.aborted) abort()
    signal.addEventListener("abort", abort)
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort))
  })

/** Waits until the time has passed or the signal aborts. */
export const pause = (clock: Clock, ms: number, signal: AbortSignal): Promise<void> => {
  let cancel = () => {}
  const over = new Promise<void>(resolve => {
    cancel = clock.after(ms, resolve)
  })
  return abortable(over, signal).finally(() => cancel())
}

/** An iterable that starts again for each reader. It ends at once when its reader returns, even during a wait. */
export const iterable = <A>(
  clock: Clock,
  signal: AbortSignal | undefined,
  run: (signal: AbortSignal) => AsyncGenerator<A, void>
): AsyncIterable<A> => ({
  [Symbol.asyncIterator]() {
    const lifetime = new Lifetime(clock, signal)
    const generator = run(lifetime.signal)
    const ended = { done: true, value: undefined } as const
    let hasReturned = false
    return {
      next: async () => {
        try {
          const result = await generator.next()
          if (result.done) lifetime.end()
          return result
        } catch (error) {
          lifetime.end()
          if (hasReturned) return ended
          throw error
        }
      },
      return: async () => {
        hasReturned = true
        lifetime.end()
        await generator.return().catch(() => {})
        return ended
      }
    }
  }
})

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
    case "BadGateway":
    case "ServiceUnavailable":
    case "GatewayTimeout":
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

  constructor(private readonly requests: { readonly clock: Clock; readonly isTokenRenewable: boolean }) {
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
