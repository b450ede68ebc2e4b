/** Failures: their messages for users, and the repetition of requests while the service is unavailable. */
import { pictureOf, replaceHidden } from "../../base/HiddenCharacters.ts"
import { ConnectionFailed, isClientError, RequestRefused } from "../../Client/Errors.ts"
import { isTransient } from "../../Client/Retry.ts"
import { type Clock, systemClock } from "../../Client/Time.ts"

/** Whether a message has details. Those of browsers for failed requests have none. */
const isDetailed = (message: string): boolean => !/^(?:Failed to fetch|Load failed|NetworkError\b)/.test(message)

const textOf = (error: unknown): string => {
  if (!(error instanceof Error)) return String(error)
  if (!isClientError(error)) return error.message
  if (error._tag === "ConnectionFailed") {
    return isDetailed(error.message) ? `The service does not answer: ${error.message}` : "The service does not answer"
  }
  const { message } = error
  return "requestId" in error && error.requestId !== undefined && error.status >= 500
    ? `${message} (request ${error.requestId})`
    : message
}

/**
 * The message of an error, with the id of the request in the log of the service. It may quote text of others, so its
 * hidden characters are replaced by visible ones.
 */
export const messageOf = (error: unknown): string => replaceHidden(textOf(error), "text", pictureOf)

/** Whether the page itself has aborted a call. */
export const isAbort = (error: unknown): boolean => error instanceof DOMException && error.name === "AbortError"

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
    const seen = () => {
      if (!document.hidden) done()
    }
    document.addEventListener("visibilitychange", seen, { signal })
  })

/** Functions that fire the pending timers of the clients. */
const timers = new Set<() => void>()

/**
 * The clock of the page's clients. Their backoff grows to 30 seconds, for services with very many clients. A user who
 * looks at a page waits an eighth of that.
 */
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

/**
 * Ends the pauses of the clients, because the service is available again. All timers fire early. Timeouts check the time
 * and continue.
 */
export const retryNow = (): void => {
  for (const fire of [...timers]) fire()
}

/** Milliseconds between two tries. They are short, because a user is waiting. */
const pauseMs = 2000

/** Whether another try may succeed. */
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
