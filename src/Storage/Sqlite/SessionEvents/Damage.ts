import { Clock, Effect } from "effect"
import * as LabelValues from "../../../Observability/LabelValues.ts"

const counter = LabelValues.counter("session_database_damage_total", {
  label: "operation",
  description: "Reads and writes of the session database that met a damaged or unreadable page."
})

/** What SQLite says where it cannot make sense of a page, or where the system cannot read one. */
const damage = /^SQLITE_(CORRUPT|NOTADB|IOERR)/

/** Whether a reason, which begins with SQLite's code, tells of a damaged file or disk. */
export const isDamage = (reason: string): boolean => damage.test(reason)

/** After it was told of damage the log hears of none for so long, in nanoseconds: whoever comes again finds it again. */
const quiet = 10_000_000_000n

/** Counts what tells of damage, and has the log hear of it: where, why, and how often it was not told in between. */
export const make = () => {
  counter.register(["read", "write"])
  let quietUntil: bigint | undefined
  let untold = 0
  return (operation: "read" | "write", reason: string, session?: string): Effect.Effect<void> =>
    Effect.flatMap(Clock.currentTimeNanos, now => {
      if (!isDamage(reason)) return Effect.void
      counter.increment(operation)
      if (quietUntil !== undefined && now < quietUntil) {
        untold++
        return Effect.void
      }
      quietUntil = now + quiet
      const since = untold
      untold = 0
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
