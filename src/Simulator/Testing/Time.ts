/**
 * Virtual time over real sockets: `TestClock` determines the time, while the event loop still has to transfer bytes.
 */
import { type Clock, Duration, Effect, TestClock } from "effect"

/** Turns of the event loop in which sockets of this process exchange several requests and answers. */
const turns = 30

/**
 * Two milliseconds of real time and then some turns of the event loop, in which sockets are read and written: if the
 * machine is busy, any time may pass without a turn.
 */
export const breathe: Effect.Effect<void> = Effect.async<void>(resume => {
  let left = turns
  let immediate: NodeJS.Immediate | undefined
  const turn = (): void => {
    if (left-- === 0) resume(Effect.void)
    else immediate = setImmediate(turn)
  }
  const timer = setTimeout(turn, 2)
  return Effect.sync(() => {
    clearTimeout(timer)
    clearImmediate(immediate)
  })
})

/**
 * Advances the test's clock step by step, and lets sockets be read and written in between: an answer that starts the
 * next wait arrives before time advances.
 */
export const pass = (
  duration: Duration.DurationInput,
  step: Duration.DurationInput = "10 seconds"
): Effect.Effect<void> => {
  const steps = Math.ceil(Duration.toMillis(duration) / Duration.toMillis(step))
  return Effect.asVoid(Effect.repeatN(Effect.zipRight(TestClock.adjust(step), breathe), steps - 1))
}

/** Waits in real time until a condition holds, which is checked in each turn of the event loop. */
export const until = (condition: () => boolean): Effect.Effect<void> =>
  Effect.async(resume => {
    const check = (): void => {
      if (condition()) resume(Effect.void)
      else handle = setImmediate(check)
    }
    let handle = setImmediate(check)
    return Effect.sync(() => clearImmediate(handle))
  })

/**
 * Runs a test that may set the wall clock by a duration, forward or back, while monotonic time continues. Both are
 * driven by `TestClock.adjust`.
 */
export const withWallClock = <A, E, R>(
  body: (set: (by: Duration.DurationInput, direction: "back" | "forward") => void) => Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> =>
  Effect.clockWith(inner => {
    // Dates are after 1970 also when the clock is set back.
    let offset = Date.UTC(2026, 0, 1)
    const now = (): number => inner.unsafeCurrentTimeMillis() + offset
    // Inherits the members that TestClock itself needs.
    const clock: Clock.Clock = Object.create(inner, {
      unsafeCurrentTimeMillis: { value: now },
      currentTimeMillis: { value: Effect.sync(now) },
      // TestClock's own nanoseconds are based on its wall clock.
      unsafeCurrentTimeNanos: { value: () => inner.unsafeCurrentTimeNanos() }
    })
    const set = (by: Duration.DurationInput, direction: "back" | "forward"): void => {
      offset += Duration.toMillis(by) * (direction === "back" ? -1 : 1)
    }
    return Effect.withClock(body(set), clock)
  })
