/** Pauses between requests that are made again and again. */
import { type Clock, systemClock } from "../../Client/Time.ts"

/** Waits, but no longer than until the signal, or until the page is looked at again or is back online. */
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

/** What fires the timers of the page's clients. */
const timers = new Set<() => void>()

/**
 * The clock of the page's clients. Clients wait longer after each try, up to 30 seconds, so that a great many of them do
 * not come back at once; somebody who looks at a page waits an eighth of that.
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
 * Lets the clients try again now, as the service answers again. Their timers fire early: pauses between tries end, and
 * time limits are looked at again, which sees that they are not over.
 */
export const tryAgain = (): void => {
  for (const fire of [...timers]) fire()
}
