/** Pauses between requests that are repeated, and their repetition while the service is unavailable. */
import { ConnectionFailed, isClientError, RequestRefused } from "../../Client/Errors.ts"
import { type Clock, isTransient, systemClock } from "../../Client/Time.ts"
import { messageOf } from "./Failure.ts"

/** Waits until the time has passed, the signal is aborted, or the page becomes visible or online. */
export const pause = (ms: number, ended?: AbortSignal): Promise<void> =>
  new Promise(resolve => {
    if (ended?.aborted) return resolve()
    const over = new AbortController()
    const done = () => {
      clearTimeout(timer)
      over.abort()
      resolve()
    }
    const timer = setTimeout(done, ms)
    const { signal } = over
    ended?.addEventListener("abort", done, { signal })
    addEventListener("online", done, { signal })
    document.addEventListener("visibilitychange", () => document.hidden || done(), { signal })
  })

const timers = new Set<() => void>()

/** The clock of the page's clients. A user waits an eighth of their backoff, which grows to 30 seconds. */
export const clock: Clock = {
  ...systemClock,
  after: (ms, callback) => {
    const cancel = () => {
      timers.delete(fire)
      cancelTimer()
    }
    const fire = () => {
      cancel()
      callback()
    }
    const cancelTimer = systemClock.after(ms, fire)
    timers.add(fire)
    return cancel
  },
  random: () => Math.random() / 8
}

/** Fires all timers of the clients early, as the service is available again. Timeouts check the time and continue. */
export const retryNow = (): void => {
  for (const fire of [...timers]) fire()
}

/** Milliseconds between two tries. They are short, because a user is waiting. */
const pauseMs = 2000

export const isRetryable = (error: unknown): boolean =>
  error instanceof RequestRefused ? error.retryable : isClientError(error) && isTransient(error)

/** Waits until the next try. Throws if the signal is aborted. */
export const untilNextTry = async (ended: AbortSignal): Promise<void> => {
  await pause(pauseMs, ended)
  ended.throwIfAborted()
}

/** Tries until it succeeds. `onProblem` receives the reason of a failure, and `""` after a success. */
export const retryUntilDone = async <A>(
  work: () => Promise<A>,
  ended: AbortSignal,
  onProblem: (message: string) => void
): Promise<A> => {
  for (;;) {
    try {
      const done = await work()
      onProblem("")
      return done
    } catch (error) {
      if (!isRetryable(error)) throw error
      // If the service is unreachable, the frame of the page reports the retry.
      onProblem(error instanceof ConnectionFailed ? messageOf(error) : `${messageOf(error)}. Trying again…`)
    }
    await untilNextTry(ended)
  }
}
