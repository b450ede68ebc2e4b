/**
 * Monotonic time, for durations: timeouts, heartbeats, cooldowns, ages of cached results.
 *
 * The wall clock may be set while the process runs, so it is used only for timestamps and the expiry of entries.
 * Effect's `currentTimeNanos` is monotonic because it is based on `process.hrtime`, and `TestClock` controls it.
 */
import { type Clock, Duration, Effect } from "effect"

/** Milliseconds since an arbitrary origin, with a fraction; only differences are meaningful. */
export const unsafeMillis = (clock: Clock.Clock): number => Number(clock.unsafeCurrentTimeNanos()) / 1e6

/** The same by the current clock. */
export const millis: Effect.Effect<number> = Effect.clockWith(clock => Effect.sync(() => unsafeMillis(clock)))

export const words = (duration: Duration.DurationInput): string => {
  const millis = Math.round(Duration.toMillis(duration))
  return Duration.format(Duration.millis(millis < 1000 ? millis : Math.round(millis / 100) * 100))
}
