import { performance } from "node:perf_hooks"
import { Effect } from "effect"

/** The part of a second that the event loop is at work for, from which on the process counts as busy. */
const busy = 0.5

/** Tells the part of the time since it was last asked, 0 to 1, that the event loop was at work for. */
const meter = (): (() => number) => {
  let before = performance.eventLoopUtilization()
  return () => {
    const now = performance.eventLoopUtilization()
    const { utilization } = performance.eventLoopUtilization(now, before)
    before = now
    return utilization
  }
}

/**
 * Waits for a load that lasts: two seconds, one after the other, in which the event loop was busy. A burst, as when
 * many clients connect at once, is none.
 */
export const lasting = (utilization: () => number = meter()): Effect.Effect<void> =>
  Effect.gen(function* () {
    let inARow = 0
    while (inARow < 2) {
      yield* Effect.sleep("1 second")
      inARow = utilization() >= busy ? inARow + 1 : 0
    }
  })
