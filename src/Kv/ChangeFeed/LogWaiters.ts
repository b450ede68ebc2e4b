import { Effect, type Scope } from "effect"
import { DrainingSignal } from "../../Http/DrainingSignal.ts"
import * as Monotonic from "../../Monotonic.ts"
import * as Supervision from "../../Supervision.ts"
import { ChangeLog, type ChangeQuery } from "../ChangeLog.ts"
import type { Page } from "./Page.ts"
import { type Pages, tail } from "./Pages.ts"
import { ReadersByPart } from "./ReadersByPart.ts"

/** Why a wait is over: there may be something to read, the deadline has passed, or the service drains. */
export type WakeReason = "grown" | "deadline" | "draining"

/** A reader of the log, and how far the log was scanned for it. */
export interface Reader {
  readonly query: ChangeQuery
  /**
   * The last `seq` scanned. It takes the place of `query.after`, and a wait moves it past what the query does not
   * select.
   */
  after: number
}

/**
 * Readers that wait for changes which their queries select. They are callbacks, served by three fibers however many
 * they are: a wait that races fibers of its own costs ten times the event that it waits for.
 */
export interface LogWaiters {
  /**
   * Waits until the log may have something for the reader after `reader.after`. The deadline is in monotonic
   * milliseconds, exact to a second; there may be none (`Infinity`). Wake-ups may be spurious. However the wait ends,
   * by interruption too, `reader.after` says how far the log was scanned.
   */
  readonly wait: (reader: Reader, deadline: number) => Effect.Effect<WakeReason>
}

/** The pause after a spurious wake-up. */
export const spuriousWakeupPause = "20 millis"

/** Pauses between reads while the store is unavailable, in milliseconds. */
export const unavailablePauses = { first: 100, longest: 2000 } as const

interface Waiter {
  readonly reader: Reader
  readonly query: ChangeQuery
  readonly deadline: number
  readonly resume: (reason: WakeReason) => void
}

/** The waiters for which an unfiltered page has changes. */
const selectedBy = (waiters: ReadersByPart<Waiter>, page: Page): ReadonlyArray<Waiter> => {
  const found: Array<Waiter> = []
  for (const { lastSeq, readers } of waiters.groupsOf(page)) {
    for (const waiter of readers) {
      const { query, reader } = waiter
      if (reader.after >= lastSeq) continue
      // The others of its group may wait for other keys.
      if (query.namespace === undefined || page.hasFor(query, reader.after)) found.push(waiter)
    }
  }
  return found
}

export const make = (pages: Pages): Effect.Effect<LogWaiters, never, ChangeLog | DrainingSignal | Scope.Scope> =>
  Effect.gen(function* () {
    const log = yield* ChangeLog
    const draining = yield* DrainingSignal
    const waiters = new ReadersByPart<Waiter>()
    const occupancy = new Supervision.Occupancy()
    const changed = Effect.unsafeMakeLatch(false)
    /** How far the log was scanned for all waiters; some may have read further by themselves. */
    let scanned = 0
    /** The epoch of the log that was scanned. */
    let epoch = pages.epoch()

    /** Removes a waiter. Returns whether it was still waiting. */
    const leave = (waiter: Waiter): boolean => {
      if (!waiters.delete(waiter)) return false
      occupancy.set(waiters.size > 0)
      const { reader } = waiter
      reader.after = Math.max(reader.after, scanned)
      return true
    }

    const wake = (reason: WakeReason, concerned: ReadonlyArray<Waiter>): void => {
      for (const waiter of concerned) if (leave(waiter)) waiter.resume(reason)
    }

    /** Wakes all, and goes on from the furthest `seq` that any reader has seen. */
    const restart = (): void => {
      wake("grown", waiters.all())
      begin()
    }

    const begin = (): void => {
      scanned = pages.end()
      epoch = pages.epoch()
    }

    /** Scans an unfiltered page after `scanned`. */
    const scan = (page: Page): void => {
      // The log was reset, or is another one.
      if (page.lastSeq < scanned || page.epoch !== epoch) return restart()
      wake("grown", selectedBy(waiters, page))
      scanned = page.lastSeq
    }

    const watch = Effect.gen(function* () {
      changed.unsafeClose()
      if (waiters.size === 0) return yield* changed.await
      if (pages.end() < scanned) return restart()
      const from = scanned
      const grown = Effect.as(log.awaitPast(from), true)
      const hasGrown = yield* Effect.raceFirst(grown, Effect.as(changed.await, false))
      if (!hasGrown) return
      // Where the read fails, each reader finds out whether that concerns it.
      const page = yield* Effect.tapErrorCause(pages.next(tail(from)), () => Effect.sync(restart))
      if (scanned !== from) return
      scan(page)
      if (page.lastSeq === from) yield* Effect.sleep(spuriousWakeupPause)
    }).pipe(
      Effect.catchAll(() => Effect.void),
      Effect.catchAllCause(cause =>
        Effect.zipRight(Effect.logError("The watch over the change log failed", cause), Effect.sleep("1 second"))
      )
    )

    yield* Supervision.forkScoped("watch over the change log", Effect.forever(watch))
    yield* Supervision.tickScoped(
      "deadlines of polls",
      "1 second",
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
          const waiter: Waiter = {
            reader,
            query: reader.query,
            deadline,
            resume: reason => resume(Effect.succeed(reason))
          }
          // The end moves back where the log is reset: then the watch has to begin anew.
          if (waiters.size === 0 || end < scanned) changed.unsafeOpen()
          if (waiters.size === 0) begin()
          waiters.add(waiter)
          occupancy.set(true)
          return Effect.sync(() => leave(waiter))
        })
    }
  })
