/**
 * Opens the database: checks whether the store can use it, and brings its schema up to date.
 */
import { Duration, Effect, type Redacted } from "effect"
import { StoreUnavailable } from "../../Kv/Store.ts"
import { differenceOf, isOfDevelopment, ofDevelopment } from "../MigrationNames.ts"
import * as Client from "./Database/Client.ts"
import { StoreRefused } from "./Database/DatabaseError.ts"
import * as TableLocks from "./Database/TableLocks.ts"
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

/** The maximum pause between two attempts to lock tables, in seconds. */
const maxPauseSeconds = 10

/** Runs `body` on its own connection, whose loss rolls a migration back. */
const withClient = <A, E>(url: Redacted.Redacted, body: (query: Client.Query) => Effect.Effect<A, E>) =>
  Effect.scoped(
    Effect.flatMap(Client.scoped(url, { statementTimeout: Client.heldTimeout }), client =>
      body((text, values, limit) => Client.queryOn(client, text, values, limit))
    )
  )

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
      return yield* new StoreRefused({
        message: `The store needs PostgreSQL ${oldestVersion} or later, and the server is version ${version}.`
      })
    }
    if (encoding !== "UTF8") {
      return yield* new StoreRefused({
        message: `The database "${database}" has the encoding ${encoding}; the store needs one with UTF8.`
      })
    }
  })

/** Returns the strongest lock of each table that the steps lock. */
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
      return yield* new StoreRefused({
        message: "The database has a copy of another store that was not finished: run causeway migrate-store again."
      })
    }
    if (isOfDevelopment(listed)) {
      return yield* new StoreRefused({ message: `The store in the database ${ofDevelopment("database")}.` })
    }
    const applied = Math.max(0, ...listed.keys())
    if (applied > migrations.length) {
      return yield* new StoreRefused({
        message:
          `The store in the database has schema ${applied}, and this version of causeway knows schemas up to ` +
          `${migrations.length}: it was written by a newer version.`
      })
    }
    const difference = differenceOf(migrations.slice(0, applied), listed)
    if (difference !== undefined) {
      return yield* new StoreRefused({
        message:
          `The store in the database was written by a version of causeway with other migrations: ${difference}. ` +
          "Start that version, or use another database."
      })
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
  /** Called if other sessions use tables that must be locked. Without it, only one attempt is made. */
  readonly onInUse?: (error: TableLocks.TablesInUse) => Effect.Effect<unknown>
}

/**
 * Checks the database and brings its schema up to date, in one transaction. It fails with `StoreUnavailable` or
 * `TablesInUse` if a later attempt may succeed. If tables are in use and `onInUse` is given, it tries again after the
 * transactions that use them have ended. So no other session waits behind it for that long.
 */
export const open = (
  url: Redacted.Redacted,
  { andThen, onInUse, ...migration }: Options = {}
): Effect.Effect<void, StoreRefused | StoreUnavailable | TableLocks.TablesInUse> =>
  withClient(url, query => {
    const attempt = (pause: number): ReturnType<typeof bringUpToDate> =>
      Effect.catchTag(bringUpToDate(query, migration), "TablesInUse", error => {
        if (onInUse === undefined) return Effect.fail(error)
        return query("ROLLBACK").pipe(
          Effect.zipRight(onInUse(error)),
          Effect.zipRight(Effect.sleep(Duration.seconds(pause))),
          Effect.zipRight(TableLocks.awaitEnd(query, error.transactions)),
          Effect.zipRight(Effect.suspend(() => attempt(Math.min(pause + 1, maxPauseSeconds))))
        )
      })
    return Effect.gen(function* () {
      yield* check(query)
      const isIdentified = yield* attempt(1)
      if (!isIdentified) {
        yield* Effect.logWarning(
          "The role may not read the system identifier or the timeline of the database: a restore or a fail-over that loses changes " +
            "does not change the epoch. Grant EXECUTE on pg_control_system, pg_walfile_name and pg_current_wal_insert_lsn."
        )
      }
      if (andThen !== undefined) yield* andThen(query)
    })
  })
