/** A wall clock that can be set while monotonic time continues. Both are driven by `TestClock.adjust`. */
import { type Clock, Duration, Effect } from "effect"

/** Runs a test that may set the wall clock by a duration, forward or (below zero) back. */
export const withWallClock = <A, E, R>(
  body: (set: (by: Duration.DurationInput, direction: "back" | "forward") => void) => Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> =>
  Effect.clockWith(inner => {
    // Dates lie after 1970 also when the clock is set back.
    let offset = Date.UTC(2026, 0, 1)
    const now = (): number => inner.unsafeCurrentTimeMillis() + offset
    // What TestClock itself needs of its clock is inherited.
    const clock: Clock.Clock = Object.create(inner, {
      unsafeCurrentTimeMillis: { value: now },
      currentTimeMillis: { value: Effect.sync(now) },
      // TestClock's own goes by its milliseconds.
      unsafeCurrentTimeNanos: { value: () => inner.unsafeCurrentTimeNanos() }
    })
    const set = (by: Duration.DurationInput, direction: "back" | "forward"): void => {
      offset += Duration.toMillis(by) * (direction === "back" ? -1 : 1)
    }
    return Effect.withClock(body(set), clock)
  })
