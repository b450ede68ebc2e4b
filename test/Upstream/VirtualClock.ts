/** A clock of virtual time: when all fibers sleep, it advances to the earliest wake-up. */
import { Clock, Duration, Effect } from "effect"

interface Sleeper {
  readonly until: number
  readonly wake: () => void
  awake: boolean
}

/** Runs an effect on such a clock. TestClock is too slow for thousands of sleeping fibers. */
export const run = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.suspend(() => {
    let now = 0
    let sleepers: Array<Sleeper> = []
    let moving = false

    const move = (): void => {
      sleepers = sleepers.filter(sleeper => !sleeper.awake)
      moving = sleepers.length > 0
      if (!moving) return
      now = sleepers.reduce((earliest, { until }) => Math.min(earliest, until), Number.POSITIVE_INFINITY)
      for (const sleeper of sleepers) if (sleeper.until <= now) sleeper.wake()
      setImmediate(move)
    }

    const clock: Clock.Clock = {
      ...Clock.make(),
      unsafeCurrentTimeMillis: () => now,
      unsafeCurrentTimeNanos: () => BigInt(Math.round(now * 1e6)),
      currentTimeMillis: Effect.sync(() => now),
      currentTimeNanos: Effect.sync(() => BigInt(Math.round(now * 1e6))),
      sleep: duration =>
        Effect.async(resume => {
          const sleeper: Sleeper = {
            // Rounded up to 10 ms, so that sleepers wake together.
            until: Math.ceil((now + Duration.toMillis(duration)) / 10) * 10,
            awake: false,
            wake: () => {
              sleeper.awake = true
              resume(Effect.void)
            }
          }
          sleepers.push(sleeper)
          if (!moving) setImmediate(move)
          moving = true
          return Effect.sync(() => {
            sleeper.awake = true
          })
        })
    }
    return Effect.withClock(effect, clock)
  })
