/** Metrics of the process: memory, and the delay of the event loop. At log level trace also lines with more of them. */

import { constants, monitorEventLoopDelay, PerformanceObserver, performance } from "node:perf_hooks"
import { Duration, Effect, Layer, LogLevel, Metric, Schedule } from "effect"
import * as Supervision from "../Supervision.ts"
import * as DebugLog from "./DebugLog.ts"
import * as MetricTags from "./MetricTags.ts"

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

const interval = Duration.seconds(10)

/** The sampling interval in milliseconds, which each recorded delay contains. */
const resolution = 20

/** The delays of the event loop in nanoseconds. */
const loopDelays = Effect.acquireRelease(
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
    yield* Supervision.forkScoped("process metrics", Effect.schedule(look, Schedule.spaced(interval)))
  })
)

const kinds: ReadonlyMap<number, "minor" | "major" | "incremental" | "weak"> = new Map([
  [constants.NODE_PERFORMANCE_GC_MINOR, "minor"],
  [constants.NODE_PERFORMANCE_GC_MAJOR, "major"],
  [constants.NODE_PERFORMANCE_GC_INCREMENTAL, "incremental"],
  [constants.NODE_PERFORMANCE_GC_WEAKCB, "weak"]
])

const rounded = (value: number): number => Math.round(value * 1000) / 1000

const kindOf = (entry: object): string => {
  const detail: unknown = "detail" in entry ? entry.detail : undefined
  const kind = typeof detail === "object" && detail !== null && "kind" in detail ? Number(detail.kind) : Number.NaN
  return kinds.get(kind) ?? "other"
}

/** Counts garbage collections; `take` returns and resets the counts. */
const collections = Effect.acquireRelease(
  Effect.sync(() => {
    let seen: Record<string, { count: number; millis: number }> = {}
    const observer = new PerformanceObserver(list => {
      for (const entry of list.getEntries()) {
        const kind = kindOf(entry)
        const { count, millis } = seen[kind] ?? { count: 0, millis: 0 }
        seen[kind] = { count: count + 1, millis: rounded(millis + entry.duration) }
      }
    })
    observer.observe({ entryTypes: ["gc"] })
    const take = () => {
      const taken = seen
      seen = {}
      return taken
    }
    return { stop: () => observer.disconnect(), take }
  }),
  ({ stop }) => Effect.sync(stop)
)

/** The number of active resources by kind, such as sockets and timers. */
const resources = (): Readonly<Record<string, number>> => {
  const counts: Record<string, number> = {}
  for (const kind of process.getActiveResourcesInfo()) counts[kind] = (counts[kind] ?? 0) + 1
  return counts
}

/**
 * Logs statistics of the runtime now and every ten seconds: the event loop, garbage collections, the heap and active
 * resources. Nothing is measured unless level trace is logged.
 */
export const layerTrace: Layer.Layer<never> = Layer.scopedDiscard(
  Effect.gen(function* () {
    if (!(yield* DebugLog.isLogged(LogLevel.Trace))) return
    const garbage = yield* collections
    const delays = yield* loopDelays
    let before = performance.eventLoopUtilization()
    const look = Effect.suspend(() => {
      const now = performance.eventLoopUtilization()
      const { utilization } = performance.eventLoopUtilization(now, before)
      before = now
      const { external, heapTotal, heapUsed, rss } = process.memoryUsage()
      const detail = {
        eventLoop: {
          utilization: rounded(utilization),
          delayMaxMillis: delays.count === 0 ? 0 : rounded(delays.max / 1e6),
          delayP99Millis: delays.count === 0 ? 0 : rounded(delays.percentile(99) / 1e6)
        },
        collections: garbage.take(),
        memory: { rss, heapTotal, heapUsed, external },
        resources: resources()
      }
      delays.reset()
      return Effect.annotateLogs(Effect.logTrace("Inside the runtime"), detail)
    })
    yield* Supervision.forkScoped("the trace of the runtime", Effect.repeat(look, Schedule.spaced(interval)))
  })
)
