import { ConnectionFailed } from "./Errors.ts"

/** The clock, timers and random numbers, which tests replace. */
export interface Clock {
  /** Monotonic milliseconds. */
  readonly now: () => number
  /** Calls back after some milliseconds, unless the function that it returns is called before. */
  readonly after: (ms: number, callback: () => void) => () => void
  /** A number from 0 to 1, less than 1. */
  readonly random: () => number
}

const longestTimer = 2 ** 31 - 1

/** The host's own. */
export const systemClock: Clock = {
  now: () => performance.now(),
  after: (ms, callback) => {
    // A longer time would be taken for none. Time limits are looked at again after it.
    const timer = setTimeout(callback, Math.min(ms, longestTimer))
    return () => clearTimeout(timer)
  },
  random: Math.random
}

/** A time limit that is under way. */
export interface Limit {
  /** Begins the time anew. It costs little, as no timer is set. */
  readonly restart: () => void
  readonly cancel: () => void
}

/** Something that ends when its parent is aborted, when a time limit passes, or when it is told to. */
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

  /** Ends it with {@link ConnectionFailed} in so many milliseconds. */
  limit(ms: number, message: string): Limit {
    const { after, now } = this.clock
    let deadline = now() + ms
    const check = () => {
      const left = deadline - now()
      if (left > 0) cancelTimer = after(left, check)
      else this.#controller.abort(new ConnectionFailed(message, true))
    }
    let cancelTimer = this.signal.aborted ? () => {} : after(ms, check)
    const limit: Limit = {
      restart: () => {
        deadline = now() + ms
      },
      cancel: () => {
        this.#limits.delete(limit)
        cancelTimer()
      }
    }
    this.#limits.add(limit)
    return limit
  }

  /** Ends it, with all that goes on under its signal. */
  end(): void {
    for (const limit of this.#limits) limit.cancel()
    this.parent?.removeEventListener("abort", this.#onAbort)
    this.#controller.abort()
  }

  readonly #onAbort = (): void => this.#controller.abort(this.parent?.reason)
}

/** A promise that is given up when the signal is aborted. */
export const abortable = <A>(promise: Promise<A>, signal: AbortSignal): Promise<A> =>
  new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason)
    if (signal.aborted) abort()
    signal.addEventListener("abort", abort)
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort))
  })

/** Waits, unless the signal is aborted. */
export const pause = (clock: Clock, ms: number, signal: AbortSignal): Promise<void> => {
  let cancel = () => {}
  const over = new Promise<void>(resolve => {
    cancel = clock.after(ms, resolve)
  })
  return abortable(over, signal).finally(() => cancel())
}

/** The bound of the first pause, and of the longest, in milliseconds. */
const firstPause = 1000
const longestPause = 30_000

/** The longest `Retry-After` that is kept to, in milliseconds: a timer of more than 24 days would fire at once. */
const longestRetryAfter = 3_600_000

/**
 * Pauses between tries: random up to a bound that doubles, so that clients that lost their connections at the same
 * moment do not come back at the same moment.
 */
export class Backoff {
  #tries = 0

  constructor(private readonly clock: Clock) {}

  /** The next pause in milliseconds; not shorter than what the service asks for. */
  next(retryAfterMs = 0): number {
    const bound = Math.min(longestPause, firstPause * 2 ** this.#tries++)
    return Math.min(retryAfterMs, longestRetryAfter) + this.clock.random() * bound
  }

  reset(): void {
    this.#tries = 0
  }
}

/** An iterable that begins anew for each reader, and ends at once when its reader leaves, even during a wait. */
export const iterable = <A>(
  clock: Clock,
  signal: AbortSignal | undefined,
  run: (signal: AbortSignal) => AsyncGenerator<A, void>
): AsyncIterable<A> => ({
  [Symbol.asyncIterator]() {
    const lifetime = new Lifetime(clock, signal)
    const generator = run(lifetime.signal)
    const ended = { done: true, value: undefined } as const
    let hasLeft = false
    return {
      next: async () => {
        try {
          const result = await generator.next()
          if (result.done) lifetime.end()
          return result
        } catch (error) {
          lifetime.end()
          if (hasLeft) return ended
          throw error
        }
      },
      return: async () => {
        hasLeft = true
        lifetime.end()
        await generator.return().catch(() => {})
        return ended
      }
    }
  }
})
