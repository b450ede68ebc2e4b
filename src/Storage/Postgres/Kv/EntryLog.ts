/**
 * The port `ChangeLog` over the connections of a node.
 */
import { Duration, Effect, Exit } from "effect"
import * as Direct from "../../../base/Direct.ts"
import { DirectFlight } from "../../../base/SingleFlight.ts"
import { ChangeLog, HistoryTrimmed } from "../../../Kv/ChangeLog.ts"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import type { AtNow, DatabaseClock } from "../Database/DatabaseClock.ts"
import { type Pool, readTimeout } from "../Database/Pool.ts"
import * as Portions from "../Database/Portions.ts"
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
