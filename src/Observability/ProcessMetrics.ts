/**
 * Metrics of the process: memory, and the delay of the event loop.
 */
import { monitorEventLoopDelay } from "node:perf_hooks"
import { Duration, Effect, Layer, Metric, Schedule } from "effect"
import * as MetricTags from "../MetricTags.ts"
import * as Supervision from "../Supervision.ts"

const residentMemory = Metric.gauge("process_resident_memory_bytes", {
  description: "Resident memory of the process in bytes."
})
const heapUsed = Metric.gauge("process_heap_used_bytes", { description: "JavaScript heap in use in bytes." })
const heapTotal = Metric.gauge("process_heap_total_bytes", { description: "JavaScript heap allocated in bytes." })
const uptime = Metric.gauge("process_uptime_seconds", { description: "Seconds that the process has been running." })
const loopDelay = Metric.gauge("event_loop_delay_ms", {
  description: "Delay of the event loop in milliseconds, 99th percentile of the last ten seconds."
})

// Without the tags of an instance, because all instances share the process.
const set = (gauge: Metric.Metric.Gauge<number>, value: number): void => gauge.unsafeUpdate(value, MetricTags.none)

/** Updates the gauges of memory and uptime. */
export const measure: Effect.Effect<void> = Effect.sync(() => {
  const memory = process.memoryUsage()
  set(residentMemory, memory.rss)
  set(heapUsed, memory.heapUsed)
  set(heapTotal, memory.heapTotal)
  set(uptime, process.uptime())
})

/** The sampling interval in milliseconds, which each recorded delay contains. */
const resolution = 20

/** The delays of the event loop in nanoseconds. */
export const loopDelays = Effect.acquireRelease(
  Effect.sync(() => {
    const delays = monitorEventLoopDelay({ resolution })
    delays.enable()
    return delays
  }),
  delays => Effect.sync(() => delays.disable())
)

/** Updates the gauge of the event loop's delay. */
export const layer: Layer.Layer<never> = Layer.scopedDiscard(
  Effect.gen(function* () {
    const delays = yield* loopDelays
    set(loopDelay, 0)
    const look = Effect.sync(() => {
      const delay = delays.count === 0 ? 0 : Math.max(0, delays.percentile(99) / 1e6 - resolution)
      delays.reset()
      set(loopDelay, delay)
    })
    yield* Supervision.forkScoped("process metrics", Effect.schedule(look, Schedule.spaced(Duration.seconds(10))))
  })
)
