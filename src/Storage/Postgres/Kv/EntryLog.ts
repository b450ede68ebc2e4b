/** The port `ChangeLog` over the connections of a node. */
import { Duration, Effect, Exit, type Scope } from "effect"
import { constVoid, identity } from "effect/Function"
import * as Direct from "../../../base/Direct.ts"
import * as HousekeepingMetrics from "../../../base/Observability/HousekeepingMetrics.ts"
import { DirectFlight } from "../../../base/SingleFlight.ts"
import * as Supervision from "../../../base/Supervision.ts"
import { ChangeLog, HistoryTrimmed } from "../../../Kv/ChangeLog.ts"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import { type AtNow, bySystemClock, type DatabaseClock } from "../Database/DatabaseClock.ts"
import { type Pool, readTimeout } from "../Database/Pool.ts"
import * as Portions from "../Database/Portions.ts"
import { calling, first, type Query } from "../Database/Statement.ts"
import type { LogEnd } from "./LogEnd.ts"
import * as Queries from "./Queries.ts"

/** How long a portion of expiry or of retention may take, in milliseconds. */
export const portionTimeoutMillis = 6000

/** The connections, the clock and the end of the log, which the ports share. */
export interface Options {
  readonly reads: Pool
  readonly writes: Pool
  readonly clock: DatabaseClock
  readonly atNow: AtNow
  readonly end: LogEnd
  /** Called with the last `seq` after entries have expired. */
  readonly onLastSeq: (lastSeq: number) => void
}

/** Returns a function that counts how often its argument differs from the one before. */
const countChanges = (): ((now: string) => number) => {
  let known: string | undefined
  let count = 0
  return now => {
    if (now !== known) count++
    known = now
    return count
  }
}

/** The port `ChangeLog` over PostgreSQL. */
export const make = ({ atNow, clock, end, onLastSeq, reads, writes }: Options) =>
  Effect.gen(function* () {
    const expiry = Portions.make()
    const retention = Portions.make()
    const histories = new DirectFlight<string, number, StoreUnavailable>(
      yield* Effect.runtime<never>(),
      "A reader of the log's history failed"
    )
    const history = Direct.map(reads.read(Queries.history), countChanges())

    const expirePortion = (size: number, now: number) =>
      Direct.map(writes.read(Queries.expire(now, size), portionTimeoutMillis), ([count, lastSeq]) => {
        if (lastSeq !== null) onLastSeq(lastSeq)
        return count
      })

    return ChangeLog.of({
      read: (query, onSent) =>
        Direct.flatMap(
          Direct.suspend(() => reads.read(Queries.changes(query), readTimeout, { onSent })),
          page =>
            "_tag" in page
              ? Exit.fail(new HistoryTrimmed({ trimmedSeq: page.trimmedSeq, epoch: page.epoch }))
              : Exit.succeed(page)
        ),
      history: histories.next("", () => history),
      lastSeq: Direct.suspend(() => reads.read(Queries.end)),
      awaitPast: seq => end.awaitPast(seq),
      trim: age =>
        atNow(now =>
          retention(size => writes.read(Queries.trim(now - Duration.toMillis(age), size), portionTimeoutMillis))
        ),
      expire: expiry(size => atNow(now => expirePortion(size, now))),
      due: Direct.map(
        Direct.suspend(() => reads.read(Queries.due)),
        ({ expiresAt, oldestAt }) => {
          const ahead = clock.ahead()
          return {
            expiresAt: expiresAt === null ? null : expiresAt - ahead,
            oldestAt: oldestAt === null ? null : oldestAt - ahead
          }
        }
      )
    })
  })

/** The maximum numbers of commit records that are removed, and of changes of counts that are folded, at a time. */
const portion = 10_000

/**
 * The number of pending changes of counts from which on they are folded: readers read all of them, and each fold leaves
 * versions.
 */
const leastFolded = 1000

/** Each returns whether more may be left. */
const prune: Query<boolean> = calling("prune_commits", [portion], rows => first(rows) === portion)
const fold: Query<boolean> = calling("fold_counts", [leastFolded, portion], rows => first(rows) === portion)

/** Moves the position of expiry to a time in epoch milliseconds, or less far, unless that is less than 10 s. */
export const advanceExpiry = (now: number): Query<void> => calling("advance_expiry", [now], constVoid)

/**
 * Removes commit records, folds counts and moves the position of expiry until the scope closes. One after the other, so
 * that they take one connection from the writes.
 */
export const upkeep = (writes: Pool, atNow: AtNow): Effect.Effect<void, never, Scope.Scope> =>
  Effect.gen(function* () {
    const inTurn = (yield* Effect.makeSemaphore(1)).withPermits(1)
    const repeat = (
      name: string,
      task: HousekeepingMetrics.Task,
      pause: Duration.DurationInput,
      work: Effect.Effect<unknown, StoreUnavailable>
    ) =>
      Effect.flatMap(HousekeepingMetrics.make(task), measured =>
        Supervision.repeatScoped(name, pause, inTurn(measured(work)))
      )
    const drain = (query: Query<boolean>) =>
      Effect.repeat(writes.read(query, portionTimeoutMillis), { while: identity<boolean> })
    yield* repeat("removing commit records", "marks", "20 seconds", drain(prune))
    yield* repeat("folding of counts", "counts", "5 seconds", drain(fold))
    // If entries are written again before they expire, nothing else moves it.
    const advance = atNow(now => writes.read(advanceExpiry(now), portionTimeoutMillis))
    yield* repeat("position of expiry", "expiry", "10 seconds", advance)
  }).pipe(bySystemClock)
