/**
 * Statistics of the runtime at log level trace: the event loop, garbage collections, the heap and active resources.
 * Nothing is measured at other levels.
 */
import { constants, PerformanceObserver, performance } from "node:perf_hooks"
import { Duration, Effect, Layer, LogLevel, Schedule } from "effect"
import * as Supervision from "../Supervision.ts"
import * as DebugLog from "./DebugLog.ts"
import { loopDelays } from "./ProcessMetrics.ts"

/** The interval between two lines. */
const interval = Duration.seconds(10)

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

/** Logs a line now and every ten seconds, if level trace is logged. */
export const layer: Layer.Layer<never> = Layer.scopedDiscard(
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
