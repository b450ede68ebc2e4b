import { Duration, Effect, type Scope } from "effect"
import { DrainingSignal } from "../../Http/DrainingSignal.ts"
import * as Monotonic from "../../Monotonic.ts"
import * as Supervision from "../../Supervision.ts"
import { ChangeLog } from "../ChangeLog.ts"
import { type Pages, tail } from "./Pages.ts"
import { type Reader, Scan, type Waiter, type WakeReason } from "./Scan.ts"

export type { Reader, WakeReason } from "./Scan.ts"

/**
 * Readers that wait for changes which their queries select. They are callbacks, served by three fibers regardless of
 * their number: a wait that races two fibers costs ten times as much as the event itself.
 */
export interface LogWaiters {
  /**
   * Waits until the log may have changes for the reader after its position. The deadline is in monotonic milliseconds,
   * accurate to a second, or `Infinity`. Wake-ups may be spurious. The position then shows how far the log was scanned,
   * also after an interruption.
   */
  readonly wait: (reader: Reader, deadline: number) => Effect.Effect<WakeReason>
}

/** The pause after a spurious wake-up. */
export const spuriousWakeupPause = Duration.millis(20)

/** The pauses between reads while the store is unavailable, in milliseconds. */
export const unavailablePauses = { first: 100, longest: 2000 } as const

/** Starts the fibers that serve the waiters, until the scope closes. */
export const make = (pages: Pages): Effect.Effect<LogWaiters, never, ChangeLog | DrainingSignal | Scope.Scope> =>
  Effect.gen(function* () {
    const log = yield* ChangeLog
    const draining = yield* DrainingSignal
    const occupancy = new Supervision.Occupancy()
    const restarted = Effect.unsafeMakeLatch(false)
    /** The end of the log that the last reads have seen. */
    const end = () => ({ lastSeq: pages.end(), epoch: pages.epoch() })
    let current = new Scan(end())

    /** Scans from the known end of the log. The waiters of the previous scan are woken, and read for themselves. */
    const restart = (): void => {
      const previous = current
      current = new Scan(end())
      restarted.unsafeOpen()
      previous.wakeAll("grown")
    }

    const watch = Effect.gen(function* () {
      restarted.unsafeClose()
      if (!current.isAwaited) return yield* restarted.await
      if (current.isOutdatedBy(end())) return restart()
      const scan = current
      const from = scan.lastSeq
      const grown = Effect.as(log.awaitPast(from), true)
      const hasGrown = yield* Effect.raceFirst(grown, Effect.as(restarted.await, false))
      if (!hasGrown) return
      // If the read fails, each reader finds out whether the failure concerns it.
      const page = yield* Effect.tapErrorCause(pages.next(tail(from)), () => Effect.sync(restart))
      if (scan !== current) return
      if (scan.isOutdatedBy(page)) return restart()
      scan.advance(page)
      if (page.lastSeq === from) yield* Effect.sleep(spuriousWakeupPause)
    }).pipe(
      Effect.catchAll(() => Effect.void),
      Effect.catchAllCause(cause =>
        Effect.zipRight(
          Effect.logError("The wait for changes of the log failed", cause),
          Effect.sleep(Duration.seconds(1))
        )
      )
    )

    yield* Supervision.forkScoped("watch over the change log", Effect.forever(watch))
    yield* Supervision.tickScoped(
      "deadlines of polls",
      Duration.seconds(1),
      occupancy,
      Effect.map(Monotonic.millis, now => {
        current.wakeDue(now)
        occupancy.set(current.isAwaited)
      })
    )
    yield* Effect.forkScoped(Effect.map(draining.started, () => current.wakeAll("draining")))

    return {
      wait: (reader, deadline) =>
        Effect.async<WakeReason>(resume => {
          if (draining.hasStarted()) return resume(Effect.succeed("draining"))
          // Another reader may have seen that the log has grown, or was reset or replaced.
          const { after, epoch } = reader.position
          if (after !== pages.end() || epoch !== pages.epoch()) return resume(Effect.succeed("grown"))
          // The scan advances the position, so it must be one of the same log.
          if (!current.isAwaited || current.isOutdatedBy(end())) restart()
          const scan = current
          const waiter: Waiter = {
            reader,
            query: reader.query,
            deadline,
            resume: reason => resume(Effect.succeed(reason))
          }
          scan.add(waiter)
          occupancy.set(true)
          return Effect.sync(() => scan.remove(waiter))
        })
    }
  })
