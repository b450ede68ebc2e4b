/** Snapshots for many reads. Each has its own connection. */
import { Effect, ExecutionStrategy, Exit, Scope } from "effect"
import * as Monotonic from "../../../base/Time/Monotonic.ts"
import { tenantOf } from "../../../Kv/Entry.ts"
import { StoreBusy, StoreUnavailable } from "../../../Kv/Store.ts"
import { SnapshotShares } from "../../SnapshotShares.ts"
import { bySystemClock } from "./DatabaseClock.ts"
import { answeredWithin } from "./DatabaseError.ts"
import { type Connection, type Pool, readTimeout } from "./Pool.ts"
import type { Query } from "./Statement.ts"

/** How long a snapshot may be without a read until the server ends its transaction, in milliseconds. */
export const idleTimeout = 60_000

/**
 * The maximum age of a snapshot, in milliseconds: as long as it is held, the server cannot remove rows replaced since.
 */
const maxAgeMillis = 600_000

/** Portions are read in the order of an index. Other plans would start with all rows. */
export const planning = ["enable_seqscan = off", "enable_bitmapscan = off", "jit = off"] as const

/** The settings of the transaction. Behind a pooler the session has none of its own. */
const settingsText = [...planning, `idle_in_transaction_session_timeout = ${idleTimeout}`]
  .map(setting => `SET LOCAL ${setting}`)
  .join("; ")

/** Queries of one snapshot, which see no later commit. */
export interface Snapshot {
  readonly run: <A>(query: Query<A>) => Effect.Effect<A, StoreUnavailable>
  /** Ends it before its scope closes. */
  readonly end: Effect.Effect<void>
}

/** Takes a snapshot for a list of a namespace. It lasts until the scope closes or `end` runs. */
export type TakeSnapshot = (namespace: string) => Effect.Effect<Snapshot, StoreUnavailable | StoreBusy, Scope.Scope>

/** Takes up to `max` snapshots at a time, on a pool with as many connections. */
export const make = (pool: Pool, max: number): TakeSnapshot => {
  const shares = new SnapshotShares(max)

  const takeShare = (namespace: string) =>
    Effect.suspend(() => {
      const release = shares.take(tenantOf(namespace))
      return release === undefined ? new StoreBusy({ retryAfterSeconds: 1 }) : Effect.succeed(release)
    })

  /** Ends a transaction. It discards a connection that does not answer. */
  const giveBack = (connection: Connection) =>
    connection.isUsable()
      ? Effect.matchEffect(connection.query("ROLLBACK"), {
          onFailure: () => Effect.sync(connection.discard),
          onSuccess: () => Effect.sync(connection.release)
        })
      : Effect.sync(connection.discard)

  const begin = Effect.fnUntraced(function* (namespace: string) {
    const scope = yield* Scope.fork(yield* Effect.scope, ExecutionStrategy.sequential)
    const connection = yield* Effect.zipRight(
      Effect.acquireRelease(takeShare(namespace), release => Effect.sync(release)),
      Effect.acquireRelease(pool.take, giveBack)
    ).pipe(Scope.extend(scope))
    const end = Scope.close(scope, Exit.void)
    const startedAt = yield* Monotonic.millis
    const begun = connection.query(`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; ${settingsText}`)
    yield* answeredWithin(readTimeout)(begun)
    return {
      end,
      run: <A>({ decode, text, values }: Query<A>) =>
        Effect.gen(function* () {
          if ((yield* Monotonic.millis) - startedAt > maxAgeMillis) {
            yield* end
            return yield* new StoreUnavailable({ reason: `a whole list took longer than ${maxAgeMillis} ms` })
          }
          return decode(yield* connection.query(text, values))
        }).pipe(bySystemClock)
    }
  })

  return namespace => bySystemClock(begin(namespace))
}
