/** Pauses between requests that are repeated. */
import { type Clock, systemClock } from "../../Client/Time.ts"

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
