import { performance } from "node:perf_hooks"
import { Effect } from "effect"

/** The utilization of the event loop, 0 to 1, from which on the process counts as busy. */
const busy = 0.5

/** Measures the utilization of the event loop, 0 to 1, since the last call. */
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
 * Waits for sustained load: two consecutive seconds in which the event loop was busy. A short burst, as when many clients
 * connect at once, does not count.
 */
export const lasting = (utilization: () => number = meter()): Effect.Effect<void> =>
  Effect.gen(function* () {
    let inARow = 0
    while (inARow < 2) {
      yield* Effect.sleep("1 second")
      inARow = utilization() >= busy ? inARow + 1 : 0
    }
  })
