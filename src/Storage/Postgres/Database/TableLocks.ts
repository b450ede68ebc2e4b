/**
 * Locks of whole tables. Whoever waits for one keeps all others waiting that ask for the table afterwards, so that the
 * wait is short where nodes may be serving.
 */
import { Data, Effect, Schedule } from "effect"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import * as Monotonic from "../../../Monotonic.ts"
import type { Query } from "./Client.ts"
import { texts } from "./Encoding.ts"

/**
 * `ROW EXCLUSIVE` is that of writers. `SHARE ROW EXCLUSIVE` admits readers, `EXCLUSIVE` those who only read, and
 * `ACCESS EXCLUSIVE` nobody.
 */
export type Mode = "ROW EXCLUSIVE" | "SHARE ROW EXCLUSIVE" | "EXCLUSIVE" | "ACCESS EXCLUSIVE"

/** Transactions of others use tables, and have not ended in time. */
export class TablesInUse extends Data.TaggedError("TablesInUse")<{
  readonly message: string
  /** The virtual ids of these transactions. */
  readonly transactions: ReadonlyArray<string>
}> {}

/** Milliseconds after which the server should have ended a statement at its time limit. */
const answerTimeout = 10_000

const sharing = ["ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock"]
const writing = ["RowExclusiveLock", "ShareUpdateExclusiveLock", ...sharing]
const updating = ["RowShareLock", ...writing]

/** The modes of others, as `pg_locks` names them, that a lock waits for. */
const conflicts: Readonly<Record<Mode, ReadonlyArray<string>>> = {
  "ROW EXCLUSIVE": sharing,
  "SHARE ROW EXCLUSIVE": writing,
  EXCLUSIVE: updating,
  "ACCESS EXCLUSIVE": ["AccessShareLock", ...updating]
}

/** Those who have such locks, the oldest transaction first. When it began is not told to each role. */
const holdersText = `SELECT l.virtualtransaction, l.relation::regclass::text || ' is used by ' || CASE
    WHEN l.pid IS NULL THEN 'a prepared transaction'
    ELSE format('process %s (%s)', l.pid, coalesce(nullif(a.application_name, ''), 'without a name'))
  END || coalesce(format(', whose transaction began %s s ago', extract(epoch FROM clock_timestamp() - a.xact_start)::int), '')
  FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
  WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid() AND l.mode = ANY ($2)
    AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    AND l.relation = $1::text::regclass
  ORDER BY a.xact_start`

/**
 * Locks tables in this order until the end of the transaction, or fails after so many milliseconds in all and tells who
 * uses them; the transaction can go on. Its statements have no time limit afterwards. As long as it succeeds, no snapshot
 * is taken.
 */
export const lock = (
  query: Query,
  locks: ReadonlyArray<readonly [table: string, mode: Mode]>,
  patience: number
): Effect.Effect<void, TablesInUse | StoreUnavailable> =>
  Effect.gen(function* () {
    const endsAt = (yield* Monotonic.millis) + patience
    yield* query("SAVEPOINT before_locks")
    for (const [table, mode] of locks) {
      const name = `causeway.${table}`
      const left = Math.max(1, Math.ceil(endsAt - (yield* Monotonic.millis)))
      yield* query(`SET LOCAL statement_timeout = ${left}`)
      yield* query(`LOCK TABLE ${name} IN ${mode} MODE`, [], left + answerTimeout).pipe(
        Effect.catchAll(({ reason }) =>
          Effect.gen(function* () {
            yield* query("ROLLBACK TO SAVEPOINT before_locks")
            const holders = yield* query(holdersText, [name, texts(conflicts[mode])])
            return yield* new TablesInUse({
              message: `${holders[0]?.[1] ?? name}: ${reason}`,
              transactions: holders.map(([transaction]) => String(transaction))
            })
          })
        )
      )
    }
    yield* query("SET LOCAL statement_timeout = 0")
  })

/** How often it is asked whether transactions have ended. */
const interval = "1 second"

/** Waits, without a lock, until transactions have ended. */
export const awaitEnd = (query: Query, transactions: ReadonlyArray<string>): Effect.Effect<void, StoreUnavailable> =>
  query("SELECT EXISTS (SELECT FROM pg_locks WHERE virtualtransaction = ANY ($1))", [texts(transactions)]).pipe(
    Effect.repeat({ until: ([row]) => row?.[0] !== true, schedule: Schedule.spaced(interval) }),
    Effect.asVoid
  )
