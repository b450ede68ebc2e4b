/**
 * The port `Store` over the connections of a node.
 */
import { Effect, Either, Exit, Option } from "effect"
import * as Direct from "../../../Direct.ts"
import {
  BackupRefused,
  EntriesTooLarge,
  IdempotencyConflict,
  PreconditionFailed,
  Store,
  type StoreUnavailable
} from "../../../Kv/Store.ts"
import { type Committed, committed, type Write } from "../../../Kv/Write.ts"
import type * as StoreCommit from "../../StoreCommit.ts"
import type { DatabaseClock } from "../Database/DatabaseClock.ts"
import type { Pipeline } from "../Database/Pipeline.ts"
import * as Pool from "../Database/Pool.ts"
import * as Snapshots from "../Database/Snapshots.ts"
import type { Query } from "../Database/Statement.ts"
import type { Outcome } from "./Group.ts"
import * as Lists from "./Lists.ts"
import * as Namespaces from "./Namespaces.ts"
import * as Queries from "./Queries.ts"

/** The connections and the group commit of the store. */
export interface Options {
  readonly reads: Pool.Pool
  /**
   * For short reads; undefined behind a pooler, which may send the statements of a connection to different sessions.
   */
  readonly pipeline: Pipeline | undefined
  readonly lists: Pool.Pool
  /** The maximum number of whole lists at a time. */
  readonly maxLists: number
  readonly group: StoreCommit.StoreCommit<PreconditionFailed | IdempotencyConflict | StoreUnavailable>
  readonly clock: DatabaseClock
}

const backupRefused = new BackupRefused({
  cause: "Unsupported",
  message:
    "The store is in PostgreSQL: back it up by pg_basebackup or pg_dump. causeway migrate-store copies it into SQLite"
})

/** The outcome of a write, as the port returns it. */
export const outcomeOf = (
  write: Write,
  outcome: Outcome
): Either.Either<Committed, PreconditionFailed | IdempotencyConflict> => {
  if (outcome._tag === "Committed") return Either.right(committed(write, outcome.committed))
  if (outcome._tag === "KeyReused") return Either.left(new IdempotencyConflict({ isInProgress: false }))
  const { currentVersion, index, isChangedBefore } = outcome
  return Either.left(new PreconditionFailed({ index, currentVersion, isChangedBefore }))
}

/** The port `Store` over PostgreSQL. */
export const make = ({ clock, group, lists, maxLists, pipeline, reads }: Options) => {
  const run = <A>({ decode, statement, values }: Query<A>): Effect.Effect<A, StoreUnavailable> =>
    reads.read(statement, values, decode)
  const runShort = <A>(query: Query<A>): Effect.Effect<A, StoreUnavailable> =>
    pipeline === undefined
      ? run(query)
      : Pool.orElseWhenLost(pipeline.run(query.statement, query.values, query.decode), () => run(query))

  return Store.of({
    get: (namespace, key) =>
      Direct.map(
        Direct.suspend(() => runShort(Queries.get(namespace, key, clock.now()))),
        Option.fromNullable
      ),
    getMany: (addresses, maxBytes, keysOnly = false) =>
      Direct.flatMap(
        Direct.suspend(() => run(Queries.getMany(addresses, maxBytes, keysOnly, clock.now()))),
        read => (read === undefined ? Exit.fail(new EntriesTooLarge({ limitBytes: maxBytes })) : Exit.succeed(read))
      ),
    ...Lists.make({ reads, snapshot: Snapshots.make(lists, maxLists), now: clock.now }),
    namespaces: query => Direct.suspend(() => run(Namespaces.namespaces(query, clock.now()))),
    tenants: query => Direct.suspend(() => run(Namespaces.tenants(query, clock.now()))),
    commit: group.commit,
    backup: backupRefused,
    now: clock.now,
    ready: Effect.suspend(() => (group.isStuck() ? Effect.succeed(false) : Effect.as(run(Queries.history), true))).pipe(
      Effect.timeoutTo({ duration: "1 second", onSuccess: answer => answer, onTimeout: () => false }),
      Effect.catchAll(() => Effect.succeed(false))
    )
  })
}
