/** Metrics of background work on stored data: entries, change records and events of sessions. */
import { Cause, Effect, Metric, MetricLabel } from "effect"
import * as MetricTags from "./MetricTags.ts"

const failures = Metric.counter("store_housekeeping_failures_total", {
  description: "Runs of background work on the store that failed, by task.",
  incremental: true
})

/**
 * `expiry`: entries that have expired are deleted; `retention`: old change records are removed; `session_events`: old
 * events of sessions are removed; `orphaned_sessions`: what is stored of sessions without a record is removed; `marks`: commit records are removed (PostgreSQL); `counts`: changes of the numbers of
 * entries are folded (PostgreSQL).
 */
export type Task = "expiry" | "retention" | "session_events" | "orphaned_sessions" | "marks" | "counts"

/** Registers the series of a task with the value 0. Returns what counts the failures of its runs, defects included. */
export const make = (task: Task): Effect.Effect<<A, E, R>(run: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>> =>
  Effect.map(MetricTags.current, tags => {
    const series = Metric.taggedWithLabels(failures, [MetricLabel.make("task", task)])
    MetricTags.register([series], tags)
    return Effect.tapErrorCause(cause =>
      Effect.sync(() => {
        if (!Cause.isInterruptedOnly(cause)) series.unsafeUpdate(1, tags)
      })
    )
  })
