/**
 * Detects groups of writes that are not answered in time.
 */
import { Cause, type Clock, Effect } from "effect"
import { untilRead } from "../EventLoop.ts"
import { StoreUnavailable } from "../Kv/Store.ts"
import * as Monotonic from "../Monotonic.ts"
import type * as Supervision from "../Supervision.ts"
import type { GroupQueue, Waiting } from "./GroupQueue.ts"

/** The queue to watch, and what happens on a timeout. */
export interface WatchdogOptions<A, B, E> {
  readonly queue: GroupQueue<A, B, E>
  readonly clock: Clock.Clock
  /** Milliseconds after which a group in flight blocks the queue. A group has its own timeout, which may be longer. */
  readonly timeoutMillis: number
  /** Fails writes with `StoreUnavailable`. */
  readonly fail: (items: ReadonlyArray<Waiting<A, B, E>>, reason: string) => void
  /** Logs what callers threw on their answers. */
  readonly reportFaults: Effect.Effect<void>
  readonly outage?: Supervision.Outage | undefined
}

/**
 * Watches the groups of a queue until it is interrupted. After `timeoutMillis` all waiting writes fail, since the store
 * may be slow or unavailable. After the group's own timeout its writes fail, too.
 *
 * The watchdog sleeps once for all groups, and never longer than `timeoutMillis`: on waking up it checks the group that
 * is in flight by then.
 */
export const watch = <A, B, E>(options: WatchdogOptions<A, B, E>): Effect.Effect<never> => {
  const { clock, fail, outage, queue, reportFaults, timeoutMillis } = options
  return Effect.forever(
    Effect.gen(function* () {
      yield* queue.until(() => queue.flight !== undefined && !queue.flight.hasTimedOut)
      const flight = queue.flight
      // The group may be answered before this fiber runs.
      if (flight === undefined) return
      const age = Monotonic.unsafeMillis(clock) - flight.startedAt
      const limit = queue.isStuck ? flight.timeoutMillis : timeoutMillis
      if (age < limit) return yield* Effect.sleep(Math.min(limit - age, timeoutMillis))
      // If the process was suspended, the answer may have arrived in the meantime.
      yield* untilRead
      if (queue.flight !== flight) return
      const reason = `a commit takes longer than ${Math.round(limit)} ms`
      queue.stall(age >= flight.timeoutMillis)
      if (flight.hasTimedOut) fail(flight.group, reason)
      fail(queue.dropWaiting(), reason)
      yield* reportFaults
      if (flight.hasTimedOut) yield* outage?.failed(Cause.fail(new StoreUnavailable({ reason }))) ?? Effect.void
    })
  )
}
