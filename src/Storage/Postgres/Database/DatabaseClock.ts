/**
 * The time of the database, from the monotonic clock of the node and its measured offset, and whether the database may
 * be used. So all nodes share one time without a query for each use.
 */
import { Clock, Context, DefaultServices, Effect } from "effect"
import * as Monotonic from "../../../base/Time/Monotonic.ts"
import { StoreUnavailable } from "../../../Kv/Store.ts"

const system = Context.get(DefaultServices.liveServices, Clock.Clock)

/**
 * Runs work with connections, and so with other processes, by the system's clock, even if a test provides another one.
 */
export const bySystemClock = Effect.withClock(system)

export interface Sample {
  /** The time of the database minus that of the monotonic clock, in milliseconds. */
  readonly offset: number
  /** The milliseconds between query and answer. The error of the offset is at most half of them. */
  readonly roundTrip: number
}

/** The number of latest measurements that are used. */
const samples = 8

/** Milliseconds by which two measurements may differ in addition to their errors: times are whole, and clocks drift. */
const tolerance = 1

const areOneClock = (a: Sample, b: Sample): boolean =>
  Math.abs(a.offset - b.offset) <= (a.roundTrip + b.roundTrip) / 2 + tolerance

/** Adds a measurement. Earlier ones that contradict it are dropped: the clock was set or has stood still since. */
export const withSample = (measured: ReadonlyArray<Sample>, sample: Sample): ReadonlyArray<Sample> => [
  ...(measured.every(other => areOneClock(other, sample)) ? measured.slice(1 - samples) : []),
  sample
]

/**
 * Returns the offset of the database: that of the measurement with the shortest round trip, or `own`, the offset of the
 * wall clock of the node, if the two differ by no more than the error of that measurement.
 */
export const offsetOf = (measured: ReadonlyArray<Sample>, own: number): number => {
  const best = measured.reduce<Sample | undefined>(
    (best, sample) => (best === undefined || sample.roundTrip < best.roundTrip ? sample : best),
    undefined
  )
  return best === undefined || areOneClock(best, { offset: own, roundTrip: 0 }) ? own : best.offset
}

/** Runs `use` with the time of the database, in epoch milliseconds. Fails until that is known. */
export type AtNow = <A, E>(use: (now: number) => Effect.Effect<A, E>) => Effect.Effect<A, E | StoreUnavailable>

/** The time of the database, by measurements of its offset from the clocks of this node. */
export interface DatabaseClock {
  /** Epoch milliseconds. */
  readonly now: () => number
  /** Milliseconds by which the database is ahead of the wall clock of this node. */
  readonly ahead: () => number
  /** Returns the server's time in its latest answer, in epoch milliseconds. */
  readonly lastServerTime: () => number
  /** Runs a query for the time of the database, and measures the offset by its answer. */
  readonly measure: <A extends { readonly now: number }, E, R>(ask: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
  /** Returns the reason why nothing may be sent to the database now, if there is one. */
  readonly refusal: () => StoreUnavailable | undefined
  /** Sets that reason, or that there is none. */
  readonly refuse: (reason: string | undefined) => void
  /** Other nodes must not see the clock of this one: it fails as long as there is a refusal. */
  readonly atNow: AtNow
}

/**
 * A clock other than the system's, such as that of a test, is used unchanged. Between two measurements the monotonic
 * clock counts the time: a change of the wall clock of one node must not expire the entries of all.
 */
export const make: Effect.Effect<DatabaseClock> = Effect.map(Effect.clock, clock => {
  const isSystem = clock === system
  let measured: ReadonlyArray<Sample> = []
  let offset: number | undefined
  let lastServerTime = Number.NEGATIVE_INFINITY
  let refusal: StoreUnavailable | undefined
  const now = (): number =>
    offset === undefined ? clock.unsafeCurrentTimeMillis() : Math.round(Monotonic.unsafeMillis(clock) + offset)
  return {
    now,
    ahead: () => (offset === undefined ? 0 : now() - clock.unsafeCurrentTimeMillis()),
    lastServerTime: () => lastServerTime,
    measure: ask =>
      Effect.suspend(() => {
        const startedAt = Monotonic.unsafeMillis(clock)
        return Effect.tap(ask, ({ now }) =>
          Effect.sync(() => {
            lastServerTime = now
            if (!isSystem) return
            const answeredAt = Monotonic.unsafeMillis(clock)
            const roundTrip = answeredAt - startedAt
            measured = withSample(measured, { offset: now - startedAt - roundTrip / 2, roundTrip })
            offset = offsetOf(measured, clock.unsafeCurrentTimeMillis() - answeredAt)
          })
        )
      }),
    refusal: () => refusal,
    refuse: reason => {
      refusal =
        reason === undefined ? undefined : new StoreUnavailable({ reason: `the database is not open: ${reason}` })
    },
    atNow: <A, E>(use: (now: number) => Effect.Effect<A, E>) =>
      Effect.suspend((): Effect.Effect<A, E | StoreUnavailable> => refusal ?? use(now()))
  }
})
