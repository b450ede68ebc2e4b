/**
 * Monotonic time, for everything that measures or waits: time limits, heartbeats, cooldowns, ages of cached results.
 *
 * The wall clock may be set back or forward while the process runs, so it serves only timestamps and the expiry of
 * entries. Effect's `currentTimeNanos` counts from `process.hrtime`, which is monotonic; `TestClock` drives it too.
 */
import { type Clock, Duration, Effect } from "effect"

/** Milliseconds since an arbitrary origin, with a fraction: only differences mean anything. */
export const unsafeMillis = (clock: Clock.Clock): number => Number(clock.unsafeCurrentTimeNanos()) / 1e6

/** The same of the clock in force. */
export const millis: Effect.Effect<number> = Effect.clockWith(clock => Effect.sync(() => unsafeMillis(clock)))

/** A duration for people: what was left of a limit has a fraction that says nothing. */
export const words = (duration: Duration.DurationInput): string => {
  const millis = Math.round(Duration.toMillis(duration))
  return Duration.format(Duration.millis(millis < 1000 ? millis : Math.round(millis / 100) * 100))
}
