/**
 * Opening the database: whether it is one that the store can use, and its schema.
 */
import { Duration, Effect, type Redacted, Schema } from "effect"
import pg from "pg"
import { StoreUnavailable } from "../../Kv/Store.ts"
import { differenceOf } from "../MigrationNames.ts"
import { clientConfig, connectClient, heldTimeout, type Query, queryOn } from "./Database/Client.ts"
import { unavailable } from "./Database/DatabaseError.ts"
import * as TableLocks from "./Database/TableLocks.ts"
import { lockable, type Migration, migrations } from "./Schema.ts"

/** The store cannot be used as it is; the message says why, for the operator. */
export class StoreRefused extends Schema.TaggedError<StoreRefused>()("StoreRefused", { message: Schema.String }) {
  /** The sentence is for the user of the program that it ends, to whom the place in this code says nothing. */
  override readonly stack = `${this.name}: ${this.message}`
}

/** The oldest release that has what the schema uses. */
const oldestVersion = 14

/** Nodes that start together migrate one after the other, by an advisory lock of this key: `CWKV`. */
const lockKey = 0x43574b56

/**
 * The version of a row in the table of migrations which says that another store is being copied into this one. No schema
 * comes so far, so that every release refuses it. Its name is the id of the source.
 */
export const unfinishedCopy = 2_000_000_000

/** Milliseconds that a step of the schema may take, and the wait for another node that brings it up to date. */
const migrationTimeout = 600_000

/** Milliseconds that tables are waited for: less than the nodes that serve meanwhile wait for them, or a lease lasts. */
const lockPatience = 500

/** Seconds between two attempts to lock tables at most. */
const longestPause = 10

/** Runs on a connection of its own, whose loss undoes a migration. */
const withClient = <A, E>(url: Redacted.Redacted, body: (query: Query) => Effect.Effect<A, E>) =>
  Effect.acquireUseRelease(
    Effect.sync(() => new pg.Client(clientConfig(url)).on("error", () => undefined)),
    client =>
      Effect.tryPromise({ try: () => connectClient(client, heldTimeout), catch: unavailable }).pipe(
        Effect.zipRight(body((text, values, limit) => queryOn(client, text, values, limit)))
      ),
    // Without its socket a client may wait for ever.
    client => Effect.sync(() => void client.end().catch(() => undefined))
  )

/** Refuses a server or a database that cannot have a store. */
export const check = (query: Query): Effect.Effect<void, StoreRefused | StoreUnavailable> =>
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

/** The strongest lock of each table that steps lock. */
const locksOf = (steps: ReadonlyArray<Migration>) =>
  lockable.flatMap(table => {
    const modes = steps.flatMap(({ locks }) => locks?.[table] ?? [])
    const mode = modes.find(mode => mode === "ACCESS EXCLUSIVE") ?? modes[0]
    return mode === undefined ? [] : [[table, mode] as const]
  })

/**
 * Brings the schema up to date, within a transaction. Returns the id of the store of which there is an unfinished copy;
 * unless that is asked for, such a database is refused. All tables that are to be changed are locked first, at once.
 */
export const migrate = (
  query: Query,
  mayBeUnfinished = false
): Effect.Effect<string | undefined, StoreRefused | StoreUnavailable | TableLocks.TablesInUse> =>
  Effect.gen(function* () {
    // A node that is stopped half-way must not keep the others from starting.
    yield* query(
      `SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '60s', true),
         set_config('idle_in_transaction_session_timeout', '5s', true)`
    )
    yield* query(
      "SELECT set_config('transaction_timeout', '0', true) WHERE current_setting('transaction_timeout', true) IS NOT NULL"
    )
    yield* query("SET LOCAL standard_conforming_strings = on")
    yield* query("SELECT pg_advisory_xact_lock($1)", [lockKey], migrationTimeout)
    // Only where something is missing, as these take rights that the role of the service need not have.
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
    const applied = Math.max(0, ...listed.keys())
    if (applied > migrations.length) {
      return yield* new StoreRefused({
        message:
          `The store in the database has schema ${applied}, and this version of causeway knows schemas up to ` +
          `${migrations.length}: it was written by a newer version.`
      })
    }
    const known = migrations.map(({ name }) => name)
    const difference = differenceOf(known, applied, listed)
    if (difference !== undefined) {
      return yield* new StoreRefused({
        message:
          `The store in the database was written by a version of causeway with other migrations: ${difference}. ` +
          "Start that version, or use another database."
      })
    }
    if (applied < migrations.length) {
      const there = yield* query("SELECT tablename FROM pg_tables WHERE schemaname = 'causeway'")
      const locks = locksOf(migrations.slice(applied)).filter(([table]) => there.some(([name]) => name === table))
      yield* TableLocks.lock(query, locks, lockPatience)
    }
    for (let version = applied + 1; version <= migrations.length; version++) {
      const { name, statements } = migrations[version - 1]!
      for (const statement of statements) yield* query(statement, [], migrationTimeout)
      yield* query("INSERT INTO causeway.migrations (version, name) VALUES ($1, $2)", [version, name])
    }
    return copied
  })

/** What is done once, and may be done again where tables are in use. Returns whether the cluster can be known. */
const bringUpToDate = (query: Query) =>
  Effect.gen(function* () {
    yield* query("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
    yield* migrate(query)
    // A copy of the store that is being made keeps writers off.
    yield* TableLocks.lock(query, [["log", "ROW EXCLUSIVE"]], lockPatience)
    const [[isIdentified]] = (yield* query("SELECT causeway.identify()")) as [[boolean]]
    yield* query("COMMIT")
    return isIdentified
  })

export interface Options {
  /** Runs on the same connection after the transaction. */
  readonly andThen?: (query: Query) => Effect.Effect<unknown, StoreUnavailable>
  /** Told where others use tables that are to be locked. Without it the attempt is the only one. */
  readonly onInUse?: (error: TableLocks.TablesInUse) => Effect.Effect<unknown>
}

/**
 * Checks the database and brings its schema up to date, in one transaction. It fails with `StoreUnavailable` or
 * `TablesInUse` where a later attempt may succeed. Where tables are in use and `onInUse` is told of that, it tries again
 * when the transactions that use them have ended, so that nobody waits behind it for as long.
 */
export const open = (
  url: Redacted.Redacted,
  { andThen, onInUse }: Options = {}
): Effect.Effect<void, StoreRefused | StoreUnavailable | TableLocks.TablesInUse> =>
  withClient(url, query => {
    const attempt = (pause: number): ReturnType<typeof bringUpToDate> =>
      Effect.catchTag(bringUpToDate(query), "TablesInUse", error => {
        if (onInUse === undefined) return Effect.fail(error)
        return query("ROLLBACK").pipe(
          Effect.zipRight(onInUse(error)),
          Effect.zipRight(Effect.sleep(Duration.seconds(pause))),
          Effect.zipRight(TableLocks.awaitEnd(query, error.transactions)),
          Effect.zipRight(Effect.suspend(() => attempt(Math.min(pause + 1, longestPause))))
        )
      })
    return Effect.gen(function* () {
      yield* check(query)
      const isIdentified = yield* attempt(1)
      if (!isIdentified) {
        yield* Effect.logWarning(
          "The database does not tell its system identifier or its timeline: a restore or a fail-over that loses changes " +
            "does not change the epoch. Grant EXECUTE on pg_control_system, pg_walfile_name and pg_current_wal_insert_lsn."
        )
      }
      if (andThen !== undefined) yield* andThen(query)
    })
  })
