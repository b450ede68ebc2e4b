import { Effect, Schedule, type Scope } from "effect"
import { Draining } from "../../Http/Draining.ts"
import * as Monotonic from "../../Monotonic.ts"
import * as Supervision from "../../Supervision.ts"
import { ChangeLog } from "../ChangeLog.ts"
import type { Pages } from "./Pages.ts"

/** Why a wait is over: the log may have grown, the deadline has passed, or the service drains. */
export type Ring = "grown" | "late" | "draining"

/**
 * Waits of readers, kept as plain callbacks and served by three fibers however many there are: a wait that races
 * fibers of its own costs ten times the event that it waits for.
 */
export interface Bell {
  /**
   * Waits until the log may have grown past `after`. The deadline is in monotonic milliseconds and kept to within a
   * second; there may be none (`Infinity`). It may ring for nothing, so read again.
   */
  readonly wait: (after: number, deadline: number) => Effect.Effect<Ring>
}

/** A store that woke its readers for nothing is not asked again before this. */
export const pauseAfterNothing = "20 millis"

interface Waiter {
  readonly after: number
  readonly deadline: number
  readonly resume: (ring: Ring) => void
}

export const make = (pages: Pages): Effect.Effect<Bell, never, ChangeLog | Draining | Scope.Scope> =>
  Effect.gen(function* () {
    const log = yield* ChangeLog
    const draining = yield* Draining
    const waiters = new Set<Waiter>()
    const arrival = Effect.unsafeMakeLatch(false)
    /** Where the log is watched from; nobody watches while it is undefined. */
    let floor: number | undefined

    const ring = (why: Ring, concerns: (waiter: Waiter) => boolean): void => {
      for (const waiter of [...waiters]) {
        if (!concerns(waiter)) continue
        waiters.delete(waiter)
        waiter.resume(why)
      }
    }
    const everybody = () => true

    const watch = Effect.gen(function* () {
      arrival.unsafeClose()
      if (waiters.size === 0) {
        floor = undefined
        return yield* arrival.await
      }
      const end = pages.end()
      floor = end
      // Others may have read on since these came: what they wait for is there, and the log may grow no more.
      ring("grown", waiter => waiter.after < end)
      const grown = Effect.map(log.awaitPast(end), () => ring("grown", everybody))
      yield* Effect.raceFirst(grown, arrival.await)
    })

    const watchOn = Effect.catchAllCause(watch, cause =>
      Effect.zipRight(Effect.logError("The watch over the change log stumbled", cause), Effect.sleep("1 second"))
    )

    yield* Supervision.forkScoped("watch over the change log", Effect.forever(watchOn))
    yield* Supervision.forkScoped(
      "deadlines of polls",
      Effect.schedule(
        Effect.map(Monotonic.millis, now => ring("late", ({ deadline }) => deadline <= now)),
        Schedule.spaced("1 second")
      )
    )
    yield* Effect.forkScoped(Effect.map(draining.begun, () => ring("draining", everybody)))

    return {
      wait: (after, deadline) =>
        Effect.async<Ring>(resume => {
          if (draining.hasBegun()) return resume(Effect.succeed("draining"))
          if (after < pages.end()) return resume(Effect.succeed("grown"))
          const waiter: Waiter = { after, deadline, resume: why => resume(Effect.succeed(why)) }
          waiters.add(waiter)
          // The end moves back where the log is reset, and then the watch has to begin anew.
          if (floor !== pages.end()) arrival.unsafeOpen()
          return Effect.sync(() => waiters.delete(waiter))
        })
    }
  })
