/**
 * The retention of session histories.
 */
import { Config, Duration, Effect, Layer, Option } from "effect"
import * as HousekeepingMetrics from "../../base/Observability/HousekeepingMetrics.ts"
import * as Setting from "../../base/Setting.ts"
import * as Supervision from "../../base/Supervision.ts"
import { type Retention, SessionEvents } from "../SessionEvents.ts"

/** The limits of a history, by size and by age. */
export interface Settings extends Retention {
  readonly age: Duration.Duration
}

/** 10,000 events, 7 days or 64 MiB, whichever comes first. */
export const defaults: Settings = { events: 10_000, bytes: 64 * 1024 * 1024, age: Duration.days(7) }

/** The limits as configuration variables. */
export const config: Config.Config<Settings> = Config.all({
  events: Setting.integer("SESSION_HISTORY_EVENTS", {
    description: "Maximum number of events in a session's history",
    default: defaults.events,
    min: 1,
    max: 10_000_000
  }),
  bytes: Setting.integer("SESSION_HISTORY_BYTES", {
    description: "Maximum bytes of events in a session's history",
    default: defaults.bytes,
    min: 1024,
    max: 64 * 1024 * 1024 * 1024
  }),
  age: Setting.optionalDuration("SESSION_HISTORY_AGE", {
    description: "How long a session's events are kept",
    shown: "7 days"
  }).pipe(Config.map(Option.getOrElse(() => defaults.age)))
})

/** Milliseconds from a failed run to the next one. */
const retryMillis = Duration.toMillis("1 minute")

/** The interval of removals is a sixtieth of the age, within these bounds, so that events are kept little longer. */
const interval = Duration.clamp({ minimum: Duration.millis(retryMillis), maximum: Duration.hours(1) })

/** Removes events past their age. */
export const layer = (age: Duration.Duration): Layer.Layer<never, never, SessionEvents> =>
  Layer.scopedDiscard(
    Effect.gen(function* () {
      const events = yield* SessionEvents
      const counted = yield* HousekeepingMetrics.make("session_events")
      const rest = Effect.sleep(Duration.toMillis(interval(Duration.times(age, 1 / 60))) - retryMillis)
      yield* Supervision.repeatWhenDueScoped(
        "retention of session events",
        retryMillis,
        Effect.as(counted(events.trim(age)), rest)
      )
    })
  )
