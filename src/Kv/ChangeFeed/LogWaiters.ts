import { Duration, Effect, type Scope } from "effect"
import { DrainingSignal } from "../../Http/DrainingSignal.ts"
import * as Monotonic from "../../Monotonic.ts"
import * as Supervision from "../../Supervision.ts"
import { ChangeLog, type ChangeQuery } from "../ChangeLog.ts"
import type { Page } from "./Page.ts"
import { type Pages, tail } from "./Pages.ts"
import { ReadersByPart } from "./ReadersByPart.ts"

/** Why a wait has ended: the log may have grown, the deadline has passed, or the service drains. */
export type WakeReason = "grown" | "deadline" | "draining"

/** A reader of the log, and how far the log was scanned for it. */
export interface Reader {
  readonly query: ChangeQuery
  /**
   * The last `seq` scanned. It replaces `query.after`, and a wait advances it past changes that the query does not
   * select.
   */
  after: number
}

/**
 * Readers that wait for changes which their queries select. They are callbacks, served by three fibers regardless of
 * their number: a wait that races two fibers costs ten times as much as the event itself.
 */
export interface LogWaiters {
  /**
   * Waits until the log may have changes for the reader after `reader.after`. The deadline is in monotonic
   * milliseconds, accurate to a second, or `Infinity`. Wake-ups may be spurious. `reader.after` shows how far the log
   * was scanned, also after an interruption.
   */
  readonly wait: (reader: Reader, deadline: number) => Effect.Effect<WakeReason>
}

/** The pause after a spurious wake-up. */
export const spuriousWakeupPause = Duration.millis(20)

/** The pauses between reads while the store is unavailable, in milliseconds. */
export const unavailablePauses = { first: 100, longest: 2000 } as const

interface Waiter {
  readonly reader: Reader
  readonly query: ChangeQuery
  readonly deadline: number
  /** Whether its position belongs to the log that is scanned, and not to one that has replaced it since. */
  readonly isOfScan: boolean
  readonly resume: (reason: WakeReason) => void
}

/** The waiters for which an unfiltered page has changes. */
const selectedBy = (waiters: ReadersByPart<Waiter>, page: Page): ReadonlyArray<Waiter> => {
  const found: Array<Waiter> = []
  for (const { lastSeq, readers } of waiters.groupsOf(page)) {
    for (const waiter of readers) {
      const { query, reader } = waiter
      if (reader.after >= lastSeq) continue
      // The others of the group may wait for other keys.
      if (query.namespace === undefined || page.hasFor(query, reader.after)) found.push(waiter)
    }
  }
  return found
}

/** Starts the fibers that serve the waiters, until the scope closes. */
export const make = (pages: Pages): Effect.Effect<LogWaiters, never, ChangeLog | DrainingSignal | Scope.Scope> =>
  Effect.gen(function* () {
    const log = yield* ChangeLog
    const draining = yield* DrainingSignal
    const waiters = new ReadersByPart<Waiter>()
    const occupancy = new Supervision.Occupancy()
    const changed = Effect.unsafeMakeLatch(false)
    /** How far the log was scanned for all waiters. Some may have read further on their own. */
    let scanned = 0
    /** The epoch of the scanned log. */
    let epoch = pages.epoch()

    /** Removes a waiter. Returns whether it was still waiting. */
    const leave = (waiter: Waiter): boolean => {
      if (!waiters.delete(waiter)) return false
      occupancy.set(waiters.size > 0)
      const { isOfScan, reader } = waiter
      if (isOfScan) reader.after = Math.max(reader.after, scanned)
      return true
    }

    const wake = (reason: WakeReason, concerned: ReadonlyArray<Waiter>): void => {
      for (const waiter of concerned) if (leave(waiter)) waiter.resume(reason)
    }

    /** Wakes all waiters, and continues from the highest `seq` that any reader has seen. */
    const restart = (): void => {
      wake("grown", waiters.all())
      begin()
    }

    /** Whether the log that is scanned has been reset or replaced, as some reader has seen. */
    const isReplaced = (): boolean => pages.end() < scanned || pages.epoch() !== epoch

    const begin = (): void => {
      scanned = pages.end()
      epoch = pages.epoch()
    }

    /** Scans an unfiltered page after `scanned`. */
    const scan = (page: Page): void => {
      // The log was reset or replaced.
      if (page.lastSeq < scanned || page.epoch !== epoch) return restart()
      wake("grown", selectedBy(waiters, page))
      scanned = page.lastSeq
    }

    const watch = Effect.gen(function* () {
      changed.unsafeClose()
      if (waiters.size === 0) return yield* changed.await
      if (isReplaced()) return restart()
      const from = scanned
      const grown = Effect.as(log.awaitPast(from), true)
      const hasGrown = yield* Effect.raceFirst(grown, Effect.as(changed.await, false))
      if (!hasGrown) return
      // If the read fails, each reader finds out whether the failure concerns it.
      const page = yield* Effect.tapErrorCause(pages.next(tail(from)), () => Effect.sync(restart))
      if (scanned !== from) return
      scan(page)
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
      Effect.map(Monotonic.millis, now =>
        wake(
          "deadline",
          waiters.all().filter(({ deadline }) => deadline <= now)
        )
      )
    )
    yield* Effect.forkScoped(Effect.map(draining.started, () => wake("draining", waiters.all())))

    return {
      wait: (reader, deadline) =>
        Effect.async<WakeReason>(resume => {
          const end = pages.end()
          if (draining.hasStarted()) return resume(Effect.succeed("draining"))
          if (reader.after < end) return resume(Effect.succeed("grown"))
          if (waiters.size === 0) begin()
          const isOfScan = !isReplaced()
          const waiter: Waiter = {
            reader,
            query: reader.query,
            deadline,
            isOfScan,
            resume: reason => resume(Effect.succeed(reason))
          }
          // After a reset of the log, the scan has to start again.
          if (waiters.size === 0 || !isOfScan) changed.unsafeOpen()
          waiters.add(waiter)
          occupancy.set(true)
          return Effect.sync(() => leave(waiter))
        })
    }
  })
