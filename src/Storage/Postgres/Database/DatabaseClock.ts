/**
 * The time of the database, by the monotonic clock of the node and its measured offset: all nodes share one time, without
 * asking for it.
 */
import { Clock, Context, DefaultServices, Effect } from "effect"
import * as Monotonic from "../../../Monotonic.ts"

const system = Context.get(DefaultServices.liveServices, Clock.Clock)

/**
 * Runs what deals with connections, and so with other processes, by the system's clock, also where a test has its own.
 */
export const bySystemClock = Effect.withClock(system)

export interface Sample {
  /** The time of the database less that of the monotonic clock, in milliseconds. */
  readonly offset: number
  /** Milliseconds between question and answer; the offset is right to within half of them. */
  readonly roundTrip: number
}

/** How many of the latest measurements are looked at. */
const samples = 8

/** Milliseconds that two measurements may differ by beside their errors: times are whole, and clocks drift. */
const tolerance = 1

const areOneClock = (a: Sample, b: Sample): boolean =>
  Math.abs(a.offset - b.offset) <= (a.roundTrip + b.roundTrip) / 2 + tolerance

/** The measurements with a new one. Those that contradict it are of a clock that has been set, or has stood still. */
export const withSample = (measured: ReadonlyArray<Sample>, sample: Sample): ReadonlyArray<Sample> => [
  ...(measured.every(other => areOneClock(other, sample)) ? measured.slice(1 - samples) : []),
  sample
]

/**
 * The offset of the database, by the measurement with the shortest round trip. It is `own`, the offset of the wall
 * clock of the node, where the two differ by no more than the error of that measurement.
 */
export const offsetOf = (measured: ReadonlyArray<Sample>, own: number): number => {
  const best = measured.reduce<Sample | undefined>(
    (best, sample) => (best === undefined || sample.roundTrip < best.roundTrip ? sample : best),
    undefined
  )
  return best === undefined || areOneClock(best, { offset: own, roundTrip: 0 }) ? own : best.offset
}

export interface DatabaseClock {
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Milliseconds by which the database is ahead of the wall clock of this node. */
  readonly ahead: () => number
  /** What the database told last of its time, in epoch milliseconds. */
  readonly lastTold: () => number
  /** Runs what asks the database for its time, and learns from the answer. */
  readonly measure: <A extends { readonly now: number }, E, R>(ask: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
}

/**
 * A clock that is not the system's, such as a test's, is taken as it is. Between two measurements time is counted by the
 * monotonic clock: whoever sets the wall clock of one node must not expire the entries of all.
 */
export const make: Effect.Effect<DatabaseClock> = Effect.map(Effect.clock, clock => {
  const isSystem = clock === system
  let measured: ReadonlyArray<Sample> = []
  let offset: number | undefined
  let lastTold = Number.NEGATIVE_INFINITY
  return {
    now: () =>
      offset === undefined ? clock.unsafeCurrentTimeMillis() : Math.round(Monotonic.unsafeMillis(clock) + offset),
    ahead: () =>
      offset === undefined ? 0 : Math.round(Monotonic.unsafeMillis(clock) + offset - clock.unsafeCurrentTimeMillis()),
    lastTold: () => lastTold,
    measure: ask =>
      Effect.suspend(() => {
        const startedAt = Monotonic.unsafeMillis(clock)
        return Effect.tap(ask, ({ now }) =>
          Effect.sync(() => {
            lastTold = now
            if (!isSystem) return
            const answeredAt = Monotonic.unsafeMillis(clock)
            const roundTrip = answeredAt - startedAt
            measured = withSample(measured, { offset: now - startedAt - roundTrip / 2, roundTrip })
            offset = offsetOf(measured, clock.unsafeCurrentTimeMillis() - answeredAt)
          })
        )
      })
  }
})
