/**
 * Locks of whole tables. While a session waits for one, all later sessions that need the table wait too. So the wait is
 * short when nodes may be serving.
 */
import { Data, Effect } from "effect"
import * as Monotonic from "../../../base/Time/Monotonic.ts"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import type { Query } from "./Client.ts"
import { textArray } from "./Statement.ts"

/**
 * Writers take `ROW EXCLUSIVE`, and `CREATE INDEX` takes `SHARE`. `SHARE` and `SHARE ROW EXCLUSIVE` admit readers and
 * `SELECT … FOR UPDATE`, `EXCLUSIVE` only readers, and `ACCESS EXCLUSIVE` no other session.
 */
export type Mode = "ROW EXCLUSIVE" | "SHARE" | "SHARE ROW EXCLUSIVE" | "EXCLUSIVE" | "ACCESS EXCLUSIVE"

/** Transactions of other sessions use tables, and have not ended in time. */
export class TablesInUse extends Data.TaggedError("TablesInUse")<{ readonly message: string }> {}

/** The time in which the server should have canceled a statement after its time limit, in milliseconds. */
const answerTimeout = 10_000

const sharing = ["ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"]
const writing = ["RowExclusiveLock", "ShareUpdateExclusiveLock", ...sharing]
const updating = ["RowShareLock", ...writing]

/** The modes of other sessions that a lock waits for, by their names in `pg_locks`. */
const conflicts: Readonly<Record<Mode, ReadonlyArray<string>>> = {
  "ROW EXCLUSIVE": sharing,
  SHARE: writing.filter(mode => mode !== "ShareLock"),
  "SHARE ROW EXCLUSIVE": writing,
  EXCLUSIVE: updating,
  "ACCESS EXCLUSIVE": ["AccessShareLock", ...updating]
}

/** The session with such a lock whose transaction is the oldest. Not every role may read when a transaction began. */
const holderText = `SELECT l.relation::regclass::text || ' is used by ' || CASE
    WHEN l.pid IS NULL THEN 'a prepared transaction'
    ELSE format('process %s (%s)', l.pid, coalesce(nullif(a.application_name, ''), 'without a name'))
  END || coalesce(format(', whose transaction began %s s ago', extract(epoch FROM clock_timestamp() - a.xact_start)::int), '')
  FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
  WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid() AND l.mode = ANY ($2)
    AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    AND l.relation = $1::text::regclass
  ORDER BY a.xact_start LIMIT 1`

/**
 * Locks tables in this order until the end of the transaction. Fails after `timeoutMillis` in all, with the sessions
 * that use the tables; the transaction can continue. Its statements have no time limit afterwards. If it succeeds, it
 * has taken no snapshot.
 */
export const lock = (
  query: Query,
  locks: ReadonlyArray<readonly [table: string, mode: Mode]>,
  timeoutMillis: number
): Effect.Effect<void, TablesInUse | StoreUnavailable> =>
  Effect.gen(function* () {
    const endsAt = (yield* Monotonic.millis) + timeoutMillis
    yield* query("SAVEPOINT before_locks")
    for (const [table, mode] of locks) {
      const name = `causeway.${table}`
      const left = Math.max(1, Math.ceil(endsAt - (yield* Monotonic.millis)))
      yield* query(`SET LOCAL statement_timeout = ${left}`)
      yield* query(`LOCK TABLE ${name} IN ${mode} MODE`, [], left + answerTimeout).pipe(
        Effect.catchAll(({ reason }) =>
          Effect.gen(function* () {
            yield* query("ROLLBACK TO SAVEPOINT before_locks")
            const [holder] = yield* query(holderText, [name, textArray(conflicts[mode])])
            return yield* new TablesInUse({ message: `${holder?.[0] ?? name}: ${reason}` })
          })
        )
      )
    }
    yield* query("SET LOCAL statement_timeout = 0")
  })
