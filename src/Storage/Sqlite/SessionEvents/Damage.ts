import { Clock, Effect } from "effect"
import * as LabelValues from "../../../Observability/LabelValues.ts"

const counter = LabelValues.counter("session_database_damage_total", {
  label: "operation",
  description: "Reads and writes of the session database that met a damaged or unreadable page."
})

/** Codes of SQLite for pages that are malformed or cannot be read. */
const damage = /^SQLITE_(CORRUPT|NOTADB|IOERR)/

/** Whether a reason, which begins with a code of SQLite, tells of a damaged file or disk. */
export const isDamage = (reason: string): boolean => damage.test(reason)

/** The least time between two lines in the log, in nanoseconds. */
const logInterval = 10_000_000_000n

/** Reports damage: counts it, and logs it with the number of reports that were not logged since the last one. */
export const make = () => {
  counter.register(["read", "write"])
  let logAgainAt: bigint | undefined
  let unlogged = 0
  return (operation: "read" | "write", reason: string, session?: string): Effect.Effect<void> =>
    Effect.flatMap(Clock.currentTimeNanos, now => {
      if (!isDamage(reason)) return Effect.void
      counter.increment(operation)
      if (logAgainAt !== undefined && now < logAgainAt) {
        unlogged++
        return Effect.void
      }
      logAgainAt = now + logInterval
      const since = unlogged
      unlogged = 0
      return Effect.logError("The session database is damaged").pipe(
        Effect.annotateLogs({
          operation,
          reason,
          ...(session === undefined ? {} : { session }),
          ...(since === 0 ? {} : { untold: since })
        })
      )
    })
}
