/**
 * Background work on the store: entries that have expired are deleted, and old change records are removed. It sleeps
 * until there is something to do.
 */
import { Clock, type Config, type Context, Duration, Effect, Layer, Option } from "effect"
import * as HousekeepingMetrics from "../HousekeepingMetrics.ts"
import { ChangeLog, type Due } from "../Kv/ChangeLog.ts"
import type { StoreUnavailable } from "../Kv/Store.ts"
import * as Setting from "../Setting.ts"
import * as Supervision from "../Supervision.ts"

/** How long change records are kept; for ever where it is not set. */
export const config: Config.Config<Option.Option<Duration.Duration>> = Setting.optionalDuration("CHANGES_RETENTION", {
  description: "How long change records are kept",
  shown: "forever"
})

/** The least time between two runs; what is due meanwhile is late by no more than this. */
const pauses = { expiry: Duration.seconds(1), retention: Duration.minutes(1) }

/**
 * The longest sleep while something will be due: the wall clock may be set meanwhile, and goes on while a machine
 * sleeps.
 */
const longestSleep = Duration.minutes(5)

/**
 * Does work as it starts and when it is due, and returns an effect that waits until the pause before it is due again, or
 * until the log has grown, which may bring the time forward.
 */
const whenDue = (
  log: Context.Tag.Service<ChangeLog>,
  work: Effect.Effect<unknown, StoreUnavailable>,
  pause: Duration.Duration,
  timeOf: (due: Due) => number | null
): Effect.Effect<Effect.Effect<void>, StoreUnavailable> => {
  /** Milliseconds until there is work; `null` where there will be none. */
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
    // Before it is asked again: what is written after that wakes.
    const grown = log.awaitPast(yield* log.lastSeq)
    const rest = yield* left
    if (rest === null) return grown
    const sleep = Math.max(0, Math.min(rest, Duration.toMillis(longestSleep)) - Duration.toMillis(pause))
    return Effect.raceFirst(Effect.sleep(sleep), grown)
  })
}

/**
 * Expires entries within a second of their time, and removes change records within a minute of the end of their
 * retention; either may be five minutes late where the wall clock was set forward.
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
            // Records are removed that are older.
            oldestAt === null ? null : oldestAt + Duration.toMillis(age) + 1
          )
        )
      )
    })
  )
