/**
 * Whole lists, each from one snapshot on a connection of its own.
 */
import { Effect, Option, type Scope, Stream } from "effect"
import { type ListStream, StoreBusy, StoreUnavailable, type WholeListQuery } from "../../Kv/Store.ts"
import * as Monotonic from "../../Monotonic.ts"
import { type Connection, type Pool, readTimeout } from "./Connections.ts"
import { bySystemClock } from "./DatabaseClock.ts"
import * as Queries from "./Queries.ts"

/** A portion of a whole list: small, so that a client with a slow connection reads one in time. */
const portionSize = { limit: 1000, size: 256 * 1024 }

/** Milliseconds that a snapshot may be without a read, after which the server ends its transaction. */
export const idleTimeout = 60_000

/** Milliseconds that a snapshot may last: while there is one, no server removes what was replaced since. */
const maxAge = 600_000

/** A connection, and how it is counted no more. */
interface Held {
  readonly connection: Connection
  readonly release: () => void
}

export type ListAll = (
  query: WholeListQuery,
  now: number
) => Effect.Effect<ListStream, StoreUnavailable | StoreBusy, Scope.Scope>

/** At most `max` lists at a time, on a pool with as many connections. */
export const make = (pool: Pool, max: number): ListAll => {
  let held = 0

  const take = Effect.suspend((): Effect.Effect<Held, StoreUnavailable | StoreBusy> => {
    if (held >= max) return Effect.fail(new StoreBusy({ retryAfterSeconds: 1 }))
    held++
    let isHeld = true
    const release = (): void => {
      if (isHeld) held--
      isHeld = false
    }
    return Effect.onError(
      Effect.map(pool.take, connection => ({ connection, release })),
      () => Effect.sync(release)
    )
  })

  return ({ isCounted = false, ...query }, now) =>
    Effect.gen(function* () {
      let isOver = false
      /** Ends the snapshot; a connection that does not answer is dropped. */
      const end = (connection: Connection, release: () => void) =>
        Effect.suspend(() => {
          if (isOver) return Effect.void
          isOver = true
          release()
          if (!connection.isUsable()) return Effect.sync(connection.discard)
          return Effect.matchEffect(connection.query("ROLLBACK"), {
            onFailure: () => Effect.sync(connection.discard),
            onSuccess: () => Effect.sync(connection.release)
          })
        })
      const { connection, release } = yield* Effect.acquireRelease(take, ({ connection, release }) =>
        end(connection, release)
      )
      const startedAt = yield* bySystemClock(Monotonic.millis)

      const portion = (after: string, isCounted = false) =>
        Effect.gen(function* () {
          if ((yield* Monotonic.millis) - startedAt > maxAge) {
            yield* end(connection, release)
            return yield* new StoreUnavailable({ reason: `a whole list took longer than ${maxAge} ms` })
          }
          const { decode, statement, values } = Queries.entries({
            ...query,
            ...portionSize,
            after,
            now,
            isCounted
          })
          const rows = decode(yield* connection.query(statement.text, values))
          // A list that has been read to its end needs no snapshot, however long the scope lasts.
          if (!rows.more) yield* end(connection, release)
          return rows
        }).pipe(bySystemClock)

      const first = yield* connection.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").pipe(
        Effect.zipRight(portion("", isCounted)),
        Effect.timeoutFail({
          duration: readTimeout,
          onTimeout: () => new StoreUnavailable({ reason: `no answer within ${readTimeout} ms` })
        }),
        bySystemClock
      )
      const portions = Stream.paginateEffect("", after =>
        Effect.map(after === "" ? Effect.succeed(first) : portion(after), ({ entries, more }) => [
          entries,
          more ? Option.some(entries.at(-1)!.key) : Option.none()
        ])
      )
      const { count, epoch, lastSeq } = first
      return { lastSeq, epoch, portions, ...(count === undefined ? {} : { count }) }
    })
}
