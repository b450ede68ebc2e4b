/**
 * A scheduler of fibers with one queue for all of them.
 *
 * Effect's own has had a queue for each fiber since 3.20, in a `WeakMap`, and a microtask for each queue, so that what
 * one fiber has in its AsyncLocalStorage is not seen by another. Nothing here uses that, and the map costs every
 * fiber that waits more than the wait does.
 */
import { Scheduler } from "effect"

/** How many times in a row tasks may bring about more tasks before input and timers have their turn, as in Effect's. */
export const turnsInARow = 2048

const now = Promise.resolve()

/** A task's error becomes an unhandled rejection, as with Effect's scheduler. */
const reject = (error: unknown): void => void Promise.reject(error)

/**
 * Runs tasks after what is running now, by their priority (the lowest number first) and then in the order of their
 * arrival; what they schedule comes after all of them. A task that throws takes no other with it: `report` is told.
 */
export const make = (report: (error: unknown) => void = reject): Scheduler.Scheduler => {
  let waiting = new Scheduler.PriorityBuckets()
  let scheduled = false
  let inARow = 0

  const schedule = () => {
    if (inARow === turnsInARow) {
      setImmediate(run)
      inARow = 0
    } else {
      now.then(run)
      inARow++
    }
  }

  const run = () => {
    const { buckets } = waiting
    waiting = new Scheduler.PriorityBuckets()
    for (const [, tasks] of buckets) {
      for (let at = 0; at < tasks.length; at++) {
        try {
          tasks[at]!()
        } catch (error) {
          report(error)
        }
      }
    }
    if (waiting.buckets.length > 0) return schedule()
    scheduled = false
    inARow = 0
  }

  return Scheduler.make((task, priority) => {
    waiting.scheduleTask(task, priority)
    if (scheduled) return
    scheduled = true
    schedule()
  })
}
