/**
 * A scheduler with one queue for all fibers.
 *
 * Since 3.20 Effect's scheduler has a queue and a microtask for each fiber, in a `WeakMap`, so that fibers do not share
 * their AsyncLocalStorage. The service does not use AsyncLocalStorage, and the map costs more than a suspension does.
 */
import { Scheduler } from "effect"

/** Runs of the queue in a row before input and timers get a turn of the event loop, as in Effect's scheduler. */
export const turnsInARow = 2048

const now = Promise.resolve()

/** An error of a task becomes an unhandled rejection, as in Effect's scheduler. */
const reject = (error: unknown): void => void Promise.reject(error)

/**
 * Runs tasks in a microtask, by priority (the lowest number first) and then in order of arrival. Tasks that they schedule
 * run after all of them. An error of a task is passed to `report` and does not affect other tasks.
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
