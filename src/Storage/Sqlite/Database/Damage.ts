/** Reports of pages that are damaged or cannot be read. */
import { Clock, Effect } from "effect"
import type { MetricTags } from "../../../base/MetricTags.ts"
import * as LabelValues from "../../../base/Observability/LabelValues.ts"

/** SQLite's codes for pages that are malformed or cannot be read. */
const damage = /^SQLITE_(CORRUPT|NOTADB|IOERR)/

/** Whether a reason, which begins with a code of SQLite, indicates a damaged file or disk. */
export const isDamage = (reason: string): boolean => damage.test(reason)

/** The minimum time between two log lines, in nanoseconds. */
const logIntervalNanos = 10_000_000_000n

/** Reports a failure if its reason indicates damage, with annotations for the log. */
export type Report = (
  operation: "read" | "write",
  reason: string,
  annotations?: Readonly<Record<string, unknown>>
) => Effect.Effect<void>

/** Counts damage, and logs it with the number of reports since the last line. */
export const reporter = (database: string, metric: string, tags: MetricTags): Report => {
  const counter = LabelValues.counter(metric, {
    label: "operation",
    description: `Reads and writes of the ${database} that met a damaged or unreadable page.`
  })
  counter.register(["read", "write"], tags)
  let logAgainAt: bigint | undefined
  let unlogged = 0
  return (operation, reason, annotations) =>
    Effect.flatMap(Clock.currentTimeNanos, now => {
      if (!isDamage(reason)) return Effect.void
      counter.increment(operation, tags)
      if (logAgainAt !== undefined && now < logAgainAt) {
        unlogged++
        return Effect.void
      }
      logAgainAt = now + logIntervalNanos
      const notLogged = unlogged
      unlogged = 0
      return Effect.annotateLogs(Effect.logError(`The ${database} is damaged`), {
        operation,
        reason,
        ...annotations,
        ...(notLogged === 0 ? {} : { notLogged })
      })
    })
}
