/**
 * Opens the database, now or as soon as it is available: checks whether the store can use it, and brings its schema up
 * to date.
 */
import { Cause, Deferred, type Duration, Effect, Option, type Redacted, type Scope } from "effect"
import * as Supervision from "../../base/Supervision.ts"
import { StoreUnavailable } from "../../Kv/Store.ts"
import { differenceOf, isOfDevelopment, ofDevelopment } from "../MigrationNames.ts"
import * as Client from "./Database/Client.ts"
import type { DatabaseClock } from "./Database/DatabaseClock.ts"
import { describe, StoreRefused } from "./Database/DatabaseError.ts"
import * as TableLocks from "./Database/TableLocks.ts"
import * as Queries from "./Kv/Queries.ts"
import { lockable, type Migration, Migrations } from "./Schema.ts"

export { StoreRefused }

/** The oldest version with all features that the schema uses. */
const oldestVersion = 14

/** The key of the advisory lock (`CWKV`) by which nodes that start together migrate one after the other. */
const lockKey = 0x43574b56

/**
 * The version of the row in the table of migrations that marks an unfinished copy of another store into this one. No
 * schema has such a high version, so that every release refuses it. Its name is the id of the source.
 */
export const unfinishedCopy = 2_000_000_000

/** The timeout of a step of the schema, and of the wait for another node that migrates, in milliseconds. */
const migrationTimeoutMillis = 600_000

/** How long a migration waits for locks of tables, in milliseconds: less than other nodes wait, and than a lease. */
const lockTimeoutMillis = 500

const refused = (message: string) => new StoreRefused({ message })

/** Fails with `StoreRefused` for a server or a database that cannot have a store. */
export const check = (query: Client.Query): Effect.Effect<void, StoreRefused | StoreUnavailable> =>
  Effect.gen(function* () {
    const [row] = yield* query(
      `SELECT current_setting('server_version_num')::int / 10000, current_setting('server_encoding'),
         pg_is_in_recovery(), current_database()`
    )
    const [version, encoding, isStandby, database] = row as [number, string, boolean, string]
    if (isStandby) return yield* new StoreUnavailable({ reason: "the database is a standby" })
    if (version < oldestVersion) {
      return yield* refused(
        `The store needs PostgreSQL ${oldestVersion} or later, and the server is version ${version}.`
      )
    }
    if (encoding !== "UTF8") {
      return yield* refused(`The database "${database}" has the encoding ${encoding}; the store needs one with UTF8.`)
    }
  })

const locksOf = (steps: ReadonlyArray<Migration>) =>
  lockable.flatMap(table => {
    const modes = steps.flatMap(({ locks }) => locks?.[table] ?? [])
    const mode = modes.find(mode => mode === "ACCESS EXCLUSIVE") ?? modes[0]
    return mode === undefined ? [] : [[table, mode] as const]
  })

/** How the schema is brought up to date. */
export interface MigrationOptions {
  /** Whether the database may have an unfinished copy of another store. Otherwise it is refused. */
  readonly mayBeUnfinished?: boolean
  /** Called before the first step, with the versions before the first step and after the last one. */
  readonly onMigration?: (from: number, to: number) => Effect.Effect<void>
}

/**
 * Brings the schema up to date, within a transaction. It first locks all tables that steps change. Returns the id of
 * the store of which the database has an unfinished copy.
 */
export const migrate = (
  query: Client.Query,
  { mayBeUnfinished = false, onMigration = () => Effect.void }: MigrationOptions = {}
): Effect.Effect<string | undefined, StoreRefused | StoreUnavailable | TableLocks.TablesInUse> =>
  Effect.gen(function* () {
    const migrations = yield* Migrations
    // A node that stops in the middle must not prevent others from starting.
    yield* query(
      `SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '60s', true),
         set_config('idle_in_transaction_session_timeout', '5s', true)`
    )
    yield* query(
      "SELECT set_config('transaction_timeout', '0', true) WHERE current_setting('transaction_timeout', true) IS NOT NULL"
    )
    yield* query("SET LOCAL standard_conforming_strings = on")
    yield* query("SELECT pg_advisory_xact_lock($1)", [lockKey], migrationTimeoutMillis)
    // Only if something is missing, as these require rights that the role of the service may not have.
    const [[schema, table]] = (yield* query(
      "SELECT to_regnamespace('causeway') IS NOT NULL, to_regclass('causeway.migrations') IS NOT NULL"
    )) as [[boolean, boolean]]
    if (!schema) yield* query("CREATE SCHEMA causeway")
    if (!table) {
      yield* query(
        `CREATE TABLE causeway.migrations (
          version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
        )`
      )
    }
    const rows = (yield* query("SELECT version, name FROM causeway.migrations")) as ReadonlyArray<[number, string]>
    const listed = new Map(rows)
    const copied = listed.get(unfinishedCopy)
    listed.delete(unfinishedCopy)
    if (copied !== undefined && !mayBeUnfinished) {
      return yield* refused(
        "The database has a copy of another store that was not finished: run causeway migrate-store again."
      )
    }
    if (isOfDevelopment(listed)) {
      return yield* refused(`The store in the database ${ofDevelopment("database")}.`)
    }
    const applied = Math.max(0, ...listed.keys())
    if (applied > migrations.length) {
      return yield* refused(
        `The store in the database has schema ${applied}, and this version of causeway knows schemas up to ` +
          `${migrations.length}: it was written by a newer version.`
      )
    }
    const difference = differenceOf(migrations.slice(0, applied), listed)
    if (difference !== undefined) {
      return yield* refused(
        `The store in the database was written by a version of causeway with other migrations: ${difference}. ` +
          "Start that version, or use another database."
      )
    }
    if (applied < migrations.length) {
      const existing = yield* query("SELECT tablename FROM pg_tables WHERE schemaname = 'causeway'")
      const locks = locksOf(migrations.slice(applied)).filter(([table]) => existing.some(([name]) => name === table))
      yield* TableLocks.lock(query, locks, lockTimeoutMillis)
      yield* onMigration(applied, migrations.length)
    }
    for (let version = applied + 1; version <= migrations.length; version++) {
      const { name, statements } = migrations[version - 1]!
      for (const statement of statements) yield* query(statement, [], migrationTimeoutMillis)
      yield* query("INSERT INTO causeway.migrations (version, name) VALUES ($1, $2)", [version, name])
    }
    return copied
  })

/** One attempt to bring the database up to date. Returns whether the role may read the cluster and its timeline. */
const bringUpToDate = (query: Client.Query, options: MigrationOptions) =>
  Effect.gen(function* () {
    yield* query("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
    yield* migrate(query, options)
    // Fails while a copy of the store is being made, which excludes writers.
    yield* TableLocks.lock(query, [["log", "ROW EXCLUSIVE"]], lockTimeoutMillis)
    const [[isIdentified]] = (yield* query("SELECT causeway.identify()")) as [[boolean]]
    yield* query("COMMIT")
    return isIdentified
  })

/** What else to do when the database is opened. */
export interface Options extends Pick<MigrationOptions, "onMigration"> {
  /** Runs on the same connection after the transaction. */
  readonly andThen?: (query: Client.Query) => Effect.Effect<unknown, StoreUnavailable>
}

/**
 * Checks the database and brings its schema up to date, in one transaction on a connection of its own. It fails with
 * `StoreUnavailable` or `TablesInUse` if a later attempt may succeed.
 */
export const open = (
  url: Redacted.Redacted,
  { andThen, ...migration }: Options = {}
): Effect.Effect<void, StoreRefused | StoreUnavailable | TableLocks.TablesInUse> =>
  Effect.gen(function* () {
    const client = yield* Client.scoped(url, { statementTimeout: Client.heldTimeout })
    const query: Client.Query = (text, values, limit) => Client.queryOn(client, text, values, limit)
    yield* check(query)
    const isIdentified = yield* bringUpToDate(query, migration)
    if (!isIdentified) {
      yield* Effect.logWarning(
        "The role may not read the system identifier or the timeline of the database: a restore or a fail-over that loses changes " +
          "does not change the epoch. Grant EXECUTE on pg_control_system, pg_walfile_name and pg_current_wal_insert_lsn."
      )
    }
    if (andThen !== undefined) yield* andThen(query)
  }).pipe(Effect.scoped)

/** How long the start waits for the database. Then it continues, and so does the attempt to open the database. */
const startTimeout = "5 seconds"

type Failure = Cause.Cause<StoreRefused | StoreUnavailable | TableLocks.TablesInUse>

/**
 * The pauses before another attempt to open the database. Other sessions wait behind an attempt that waits for a lock.
 */
const pauses = { StoreUnavailable: "500 millis", StoreRefused: "2 seconds", TablesInUse: "10 seconds" } as const

const pauseAfter = (cause: Failure): Duration.DurationInput =>
  Option.match(Cause.failureOption(cause), {
    onNone: () => pauses.StoreUnavailable,
    onSome: ({ _tag }) => pauses[_tag]
  })

const refusalIn = (cause: Failure): Option.Option<StoreRefused> =>
  Option.filter(Cause.failureOption(cause), error => error._tag === "StoreRefused")

const reasonOf = (cause: Failure): string => {
  const failure = Cause.failureOption(cause)
  return Option.isSome(failure) ? failure.value.message : describe(Cause.squash(cause))
}

/**
 * Opens the database, now or as soon as it is available, and reads its clock; until then the clock refuses its use. A
 * node that starts while the database is unavailable continues without it, and must not serve a database that it would
 * have refused. Fails only if the first attempt finds a store to refuse.
 */
export const whenAvailable = (
  url: Redacted.Redacted,
  clock: DatabaseClock
): Effect.Effect<void, StoreRefused, Scope.Scope> =>
  Effect.gen(function* () {
    clock.refuse(`no answer within ${startTimeout}`)
    const outage = Supervision.outage("opening the database")
    let logged: string | undefined
    const failed = (cause: Failure): Effect.Effect<void> =>
      Effect.suspend(() => {
        const reason = reasonOf(cause)
        clock.refuse(reason)
        if (Option.isNone(refusalIn(cause)))
          return outage.failed(Cause.map(cause, ({ message }) => ({ reason: message })))
        if (reason === logged) return Effect.void
        logged = reason
        // The service has started, so that only the log can report it.
        return Effect.logError(reason)
      })
    const attempt = open(url, {
      onMigration: (from, to) => {
        clock.refuse(`its schema is brought up to date, from version ${from} to ${to}`)
        // Steps may take minutes in a large store, and writers wait for them.
        return Effect.annotateLogs(Effect.logInfo("The schema of the database is brought up to date"), { from, to })
      },
      andThen: query => clock.measure(Effect.map(query(Queries.clockAndLogEnd.text), Queries.clockAndLogEnd.decode))
    }).pipe(
      Effect.tap(() => Effect.sync(() => clock.refuse(undefined))),
      Effect.sandbox
    )
    const again: (cause: Failure) => Effect.Effect<void> = cause =>
      failed(cause).pipe(Effect.zipRight(Effect.delay(attempt, pauseAfter(cause))), Effect.catchAll(again))
    /** Ended by the first attempt, or by the timeout. After that a refusal no longer ends the start. */
    const start = yield* Deferred.make<void, StoreRefused>()
    const end = Deferred.succeed(start, undefined)
    const first = Effect.catchAll(attempt, cause =>
      Effect.flatMap(
        Option.match(refusalIn(cause), { onNone: () => Effect.succeed(false), onSome: it => Deferred.fail(start, it) }),
        isRefused => (isRefused ? Effect.void : Effect.zipRight(end, Effect.zipRight(again(cause), outage.over)))
      )
    )
    // Not interrupted at the timeout: in the server, an attempt would continue until the end of its statement, with the
    // locks of a migration, and the next one would do all of it again.
    yield* Supervision.forkUntilClosed(Effect.zipRight(first, end), yield* Effect.scope)
    yield* Effect.raceFirst(Deferred.await(start), Effect.delay(end, startTimeout))
  })
