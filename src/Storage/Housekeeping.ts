/** Background work on the store: deletes expired entries, and removes old change records, when these are due. */
import { Clock, type Config, type Context, Duration, Effect, Layer, Option } from "effect"
import * as HousekeepingMetrics from "../base/Observability/HousekeepingMetrics.ts"
import * as Setting from "../base/Setting.ts"
import * as Supervision from "../base/Supervision.ts"
import { ChangeLog, type Due } from "../Kv/ChangeLog.ts"
import type { StoreUnavailable } from "../Kv/Store.ts"

/** How long change records are kept. Without it they are never removed. */
export const config: Config.Config<Option.Option<Duration.Duration>> = Setting.optionalDuration("CHANGES_RETENTION", {
  description: "How long change records are kept",
  shown: "forever"
})

/** The minimum time between two runs. Work that becomes due in between is late by no more than this. */
const pauses = { expiry: Duration.seconds(1), retention: Duration.minutes(1) }

/** The longest sleep: the wall clock may be set in the meantime, and continues while the machine is suspended. */
const longestSleep = Duration.minutes(5)

/**
 * Does the work at the start and whenever it is due. Returns an effect that waits until `pause` before the next work is
 * due, or until the log has grown, which may make it due earlier.
 */
const whenDue = (
  log: Context.Tag.Service<ChangeLog>,
  work: Effect.Effect<unknown, StoreUnavailable>,
  pause: Duration.Duration,
  timeOf: (due: Due) => number | null
): Effect.Effect<Effect.Effect<void>, StoreUnavailable> => {
  /** Milliseconds until there is work; `null` if none will become due. */
  const left = Effect.zipWith(log.due, Clock.currentTimeMillis, (found, now) => {
    const time = timeOf(found)
    return time === null ? null : time - now
  })
  let isFirst = true
  return Effect.gen(function* () {
    let next = isFirst ? 0 : yield* left
    isFirst = false
    if (next !== null && next <= 0) {
      yield* work
      next = yield* left
    }
    if (next !== null && next <= Duration.toMillis(pause)) return Effect.void
    // Before the next query of the due time: later writes end the wait.
    const grown = log.awaitPast(yield* log.lastSeq)
    const rest = yield* left
    if (rest === null) return grown
    const sleep = Math.max(0, Math.min(rest, Duration.toMillis(longestSleep)) - Duration.toMillis(pause))
    return Effect.raceFirst(Effect.sleep(sleep), grown)
  })
}

/**
 * Deletes entries within a second of their expiry, and removes change records within a minute of the end of their
 * retention. Either may be five minutes late if the wall clock was set forward.
 */
export const layer = (retention: Option.Option<Duration.Duration>): Layer.Layer<never, never, ChangeLog> =>
  Layer.scopedDiscard(
    Effect.gen(function* () {
      const log = yield* ChangeLog
      const expiry = yield* HousekeepingMetrics.make("expiry")
      yield* Supervision.repeatWhenDueScoped(
        "expiry of entries",
        pauses.expiry,
        expiry(whenDue(log, log.expire, pauses.expiry, ({ expiresAt }) => expiresAt))
      )
      const trimming = yield* HousekeepingMetrics.make("retention")
      if (Option.isNone(retention)) return
      const age = retention.value
      yield* Supervision.repeatWhenDueScoped(
        "retention of changes",
        pauses.retention,
        trimming(
          whenDue(log, log.trim(age), pauses.retention, ({ oldestAt }) =>
            // Only records that are older are removed.
            oldestAt === null ? null : oldestAt + Duration.toMillis(age) + 1
          )
        )
      )
    })
  )
