/**
 * The time of the database, by the clock of the node and its measured offset: all nodes share one time, without asking for
 * it.
 */
import { Clock, Context, DefaultServices, Effect } from "effect"
import * as Monotonic from "../../Monotonic.ts"

const system = Context.get(DefaultServices.liveServices, Clock.Clock)

/** Runs what deals with connections, and so with other processes, by the system's clock, also where a test has its own. */
export const bySystemClock = Effect.withClock(system)

interface Sample {
  readonly offset: number
  /** Milliseconds between question and answer; the offset is right to within half of them. */
  readonly roundTrip: number
}

/** How many of the latest measurements are looked at. */
const samples = 8

/** The offset of the database, by the measurement with the shortest round trip; 0 where that cannot tell it from 0. */
export const offsetOf = (measured: ReadonlyArray<Sample>): number => {
  const best = measured.reduce<Sample | undefined>(
    (best, sample) => (best === undefined || sample.roundTrip < best.roundTrip ? sample : best),
    undefined
  )
  return best === undefined || Math.abs(best.offset) <= best.roundTrip / 2 + 1 ? 0 : Math.round(best.offset)
}

export interface DatabaseClock {
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Runs what asks the database for its time, and learns from the answer. */
  readonly measure: <A extends { readonly now: number }, E, R>(ask: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
}

/** A clock that is not the system's, such as a test's, is taken as it is. */
export const make: Effect.Effect<DatabaseClock> = Effect.map(Effect.clock, clock => {
  const isSystem = clock === system
  const measured: Array<Sample> = []
  let offset = 0
  return {
    now: () => clock.unsafeCurrentTimeMillis() + offset,
    measure: ask =>
      Effect.suspend(() => {
        const before = clock.unsafeCurrentTimeMillis()
        const startedAt = Monotonic.unsafeMillis(clock)
        return Effect.tap(ask, ({ now }) =>
          Effect.sync(() => {
            if (!isSystem) return
            const roundTrip = Monotonic.unsafeMillis(clock) - startedAt
            measured.push({ offset: now - before - roundTrip / 2, roundTrip })
            if (measured.length > samples) measured.shift()
            offset = offsetOf(measured)
          })
        )
      })
  }
})
