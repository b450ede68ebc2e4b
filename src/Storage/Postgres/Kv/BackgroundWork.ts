/**
 * Work on the tables of the store that each node repeats, whatever the clock of a test is.
 */
import { Duration, Effect, type Scope } from "effect"
import * as HousekeepingMetrics from "../../../HousekeepingMetrics.ts"
import * as Supervision from "../../../Supervision.ts"
import * as DatabaseClock from "../Database/DatabaseClock.ts"
import type { Pool } from "../Database/Pool.ts"
import * as Counts from "./Counts.ts"
import { portionTimeoutMillis } from "./EntryLog.ts"
import * as Expiry from "./Expiry.ts"
import type { Writer } from "./Writer.ts"

/** The pause between two removals of commit records. */
const pruneInterval = Duration.seconds(20)

/**
 * Removes commit records, folds counts and moves the position of expiry until the scope closes. One after the other, so
 * that they take one connection from the writes.
 */
export const run = (
  writes: Pool,
  writer: Writer,
  atNow: DatabaseClock.AtNow
): Effect.Effect<void, never, Scope.Scope> =>
  Effect.gen(function* () {
    const inTurn = (yield* Effect.makeSemaphore(1)).withPermits(1)
    const pruning = yield* HousekeepingMetrics.make("marks")
    yield* Supervision.repeatScoped("removing commit records", pruneInterval, inTurn(pruning(writer.prune)))
    const counts = yield* HousekeepingMetrics.make("counts")
    const { decode, statement, values } = Counts.fold
    const fold = writes.read(statement, values, decode, portionTimeoutMillis)
    yield* Supervision.repeatScoped(
      "folding of counts",
      Counts.interval,
      inTurn(counts(Effect.repeat(fold, { while: mayBeMore => mayBeMore })))
    )
    const expiry = yield* HousekeepingMetrics.make("expiry")
    yield* Supervision.repeatScoped(
      "position of expiry",
      Expiry.interval,
      inTurn(expiry(atNow(now => writes.read(Expiry.advance, [now], () => undefined, portionTimeoutMillis))))
    )
  }).pipe(DatabaseClock.bySystemClock)
