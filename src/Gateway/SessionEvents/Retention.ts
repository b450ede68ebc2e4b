/**
 * How much of each session's history is kept.
 */
import { Config, Duration, Effect, Layer, Option } from "effect"
import * as HousekeepingMetrics from "../../HousekeepingMetrics.ts"
import * as Setting from "../../Setting.ts"
import * as Supervision from "../../Supervision.ts"
import { type Retention, SessionEvents } from "../SessionEvents.ts"

/** What bounds a history, by number and by age. */
export interface Settings extends Retention {
  readonly age: Duration.Duration
}

/** 10,000 events, 7 days or 64 MiB, whichever comes first. */
export const defaults: Settings = { events: 10_000, bytes: 64 * 1024 * 1024, age: Duration.days(7) }

/** The bounds as configuration variables. */
export const config: Config.Config<Settings> = Config.all({
  events: Setting.integer("SESSION_HISTORY_EVENTS", {
    description: "Events kept of each session",
    default: defaults.events,
    min: 1,
    max: 10_000_000
  }),
  bytes: Setting.integer("SESSION_HISTORY_BYTES", {
    description: "Bytes of events kept of each session",
    default: defaults.bytes,
    min: 1024,
    max: 64 * 1024 * 1024 * 1024
  }),
  age: Setting.optionalDuration("SESSION_HISTORY_AGE", {
    description: "How long events of sessions are kept",
    shown: "7 days"
  }).pipe(Config.map(Option.getOrElse(() => defaults.age)))
})

/** Milliseconds between two runs of which the first has failed. */
const retryPause = Duration.toMillis("1 minute")

/** How often events of an age are removed: a sixtieth of it, so that they are kept little longer, within these bounds. */
const interval = Duration.clamp({ minimum: Duration.millis(retryPause), maximum: Duration.hours(1) })

/** Removes events past their age. */
export const layer = (age: Duration.Duration): Layer.Layer<never, never, SessionEvents> =>
  Layer.scopedDiscard(
    Effect.gen(function* () {
      const events = yield* SessionEvents
      const counted = yield* HousekeepingMetrics.make("session_events")
      const rest = Effect.sleep(Duration.toMillis(interval(Duration.times(age, 1 / 60))) - retryPause)
      yield* Supervision.repeatWhenDueScoped(
        "retention of session events",
        retryPause,
        Effect.as(counted(events.trim(age)), rest)
      )
    })
  )
