/**
 * Work on the tables of the store that each node repeats, whatever the clock of a test is.
 */
import { type Duration, Effect, type Scope } from "effect"
import { constVoid, identity } from "effect/Function"
import * as HousekeepingMetrics from "../../../base/HousekeepingMetrics.ts"
import * as Supervision from "../../../base/Supervision.ts"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import * as DatabaseClock from "../Database/DatabaseClock.ts"
import type { Pool } from "../Database/Pool.ts"
import { calling, first, type Query } from "../Database/Statement.ts"
import { portionTimeoutMillis } from "./EntryLog.ts"

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
export const run = (writes: Pool, atNow: DatabaseClock.AtNow): Effect.Effect<void, never, Scope.Scope> =>
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
  }).pipe(DatabaseClock.bySystemClock)
