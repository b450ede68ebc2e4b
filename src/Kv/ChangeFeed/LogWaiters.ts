import { Effect, Schedule, type Scope } from "effect"
import { DrainingSignal } from "../../Http/DrainingSignal.ts"
import * as Monotonic from "../../Monotonic.ts"
import * as Supervision from "../../Supervision.ts"
import { ChangeLog } from "../ChangeLog.ts"
import type { Pages } from "./Pages.ts"

/** Why a wait is over: the log may have grown, the deadline has passed, or the service drains. */
export type WakeReason = "grown" | "deadline" | "draining"

/**
 * Readers that wait for the log to grow. They are callbacks, served by three fibers however many they are: a wait that
 * races fibers of its own costs ten times the event that it waits for.
 */
export interface LogWaiters {
  /**
   * Waits until the log may have grown past `after`. The deadline is in monotonic milliseconds, exact to a second;
   * there may be none (`Infinity`). Wake-ups may be spurious.
   */
  readonly wait: (after: number, deadline: number) => Effect.Effect<WakeReason>
}

/** The pause after a spurious wake-up. */
export const spuriousWakeupPause = "20 millis"

interface Waiter {
  readonly after: number
  readonly deadline: number
  readonly resume: (reason: WakeReason) => void
}

export const make = (pages: Pages): Effect.Effect<LogWaiters, never, ChangeLog | DrainingSignal | Scope.Scope> =>
  Effect.gen(function* () {
    const log = yield* ChangeLog
    const draining = yield* DrainingSignal
    const waiters = new Set<Waiter>()
    const arrival = Effect.unsafeMakeLatch(false)
    /** The end of the log for which growth is awaited; `undefined` while there are no waiters. */
    let awaited: number | undefined

    const wake = (reason: WakeReason, concerns: (waiter: Waiter) => boolean): void => {
      for (const waiter of [...waiters]) {
        if (!concerns(waiter)) continue
        waiters.delete(waiter)
        waiter.resume(reason)
      }
    }
    const all = () => true

    const watch = Effect.gen(function* () {
      arrival.unsafeClose()
      if (waiters.size === 0) {
        awaited = undefined
        return yield* arrival.await
      }
      const end = pages.end()
      awaited = end
      // Another reader may have read on since these came, and the log may grow no more.
      wake("grown", waiter => waiter.after < end)
      const grown = Effect.map(log.awaitPast(end), () => wake("grown", all))
      yield* Effect.raceFirst(grown, arrival.await)
    })

    const watchOn = Effect.catchAllCause(watch, cause =>
      Effect.zipRight(Effect.logError("The watch over the change log failed", cause), Effect.sleep("1 second"))
    )

    yield* Supervision.forkScoped("watch over the change log", Effect.forever(watchOn))
    yield* Supervision.forkScoped(
      "deadlines of polls",
      Effect.schedule(
        Effect.map(Monotonic.millis, now => wake("deadline", ({ deadline }) => deadline <= now)),
        Schedule.spaced("1 second")
      )
    )
    yield* Effect.forkScoped(Effect.map(draining.begun, () => wake("draining", all)))

    return {
      wait: (after, deadline) =>
        Effect.async<WakeReason>(resume => {
          if (draining.hasBegun()) return resume(Effect.succeed("draining"))
          if (after < pages.end()) return resume(Effect.succeed("grown"))
          const waiter: Waiter = { after, deadline, resume: reason => resume(Effect.succeed(reason)) }
          waiters.add(waiter)
          // The end moves back where the log is reset: then the watch has to begin anew.
          if (awaited !== pages.end()) arrival.unsafeOpen()
          return Effect.sync(() => waiters.delete(waiter))
        })
    }
  })
