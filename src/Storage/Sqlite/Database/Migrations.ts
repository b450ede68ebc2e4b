/**
 * Migrates a database file to the newest schema. Loaded only if a file is created or migrated.
 */
import * as Migrator from "@effect/sql/Migrator"
import * as SqlClient from "@effect/sql/SqlClient"
import * as SqliteClient from "@effect/sql-sqlite-node/SqliteClient"
import { Effect } from "effect"
import { migrationsTable } from "./AppliedMigrations.ts"

// The package bundles this file with the migrator: migrations must use the client of the bundle.
export { SqlClient }

/** One step from a schema version to the next. */
export interface Migration {
  /** In lower case with underscores, as in the table of migrations. */
  readonly name: string
  /**
   * Runs after the previous migrations, in the transaction that all missing migrations share. One with `prepare` starts
   * another transaction.
   */
  readonly run: Effect.Effect<void, unknown, SqlClient.SqlClient>
  /** Runs before that transaction in an existing file, and again if the migration was interrupted. */
  readonly prepare?: Effect.Effect<void, unknown, SqlClient.SqlClient>
}

/** A migration that consists of SQL statements without parameters. */
export const fromStatements = (name: string, ...texts: ReadonlyArray<string>): Migration => ({
  name,
  run: Effect.flatMap(SqlClient.SqlClient, sql => Effect.forEach(texts, text => sql.unsafe(text), { discard: true }))
})

/** The name of the migration to a schema version: `0001_initial`. */
const keyOf = (migration: Migration, index: number): string => `${String(index + 1).padStart(4, "0")}_${migration.name}`

const pragma = (name: string, value: number) =>
  Effect.flatMap(SqlClient.SqlClient, sql => sql.unsafe(`PRAGMA ${name} = ${value}`))

const versionOf = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql.unsafe<{ readonly user_version: number }>("PRAGMA user_version")
  return row?.user_version ?? 0
})

/** Lists the migrations of a file that was created before its format had migrations. */
const adopt = (migrations: ReadonlyArray<Migration>) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const version = yield* versionOf
    const tables = yield* sql`SELECT 1 FROM sqlite_schema WHERE name = ${migrationsTable}`
    if (version === 0 || tables.length > 0) return
    yield* sql.unsafe(
      `CREATE TABLE ${migrationsTable} (
        migration_id integer PRIMARY KEY NOT NULL,
        created_at datetime NOT NULL DEFAULT current_timestamp,
        name VARCHAR(255) NOT NULL
      )`
    )
    const rows = migrations.slice(0, version).map(({ name }, index) => ({ migration_id: index + 1, name }))
    yield* sql`INSERT INTO ${sql(migrationsTable)} ${sql.insert(rows)}`
  })

/**
 * Runs the missing migrations of a database on a separate connection, and checkpoints them into the file. Those that
 * share a transaction are applied together or not at all. The position of a migration in the list is its schema
 * version. The caller has checked that the file is ours, or missing.
 */
export const migrate = (
  file: string,
  applicationId: number,
  migrations: ReadonlyArray<Migration>
): Effect.Effect<void, unknown> =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql.withTransaction(adopt(migrations))
    const version = yield* versionOf
    const steps = migrations.map(
      (migration, index) =>
        [
          keyOf(migration, index),
          Effect.zipRight(
            migration.run,
            Effect.zip(pragma("application_id", applicationId), pragma("user_version", index + 1))
          ).pipe(Effect.asVoid)
        ] as const
    )
    const runUpTo = (end: number) =>
      Migrator.make({})({
        loader: Migrator.fromRecord(Object.fromEntries(steps.slice(0, end))),
        table: migrationsTable
      })
    for (const [index, { prepare }] of migrations.entries()) {
      if (version === 0 || index < version || prepare === undefined) continue
      yield* runUpTo(index)
      yield* prepare
    }
    yield* runUpTo(migrations.length)
    yield* sql.unsafe("PRAGMA wal_checkpoint(TRUNCATE)")
  }).pipe(Effect.provide(SqliteClient.layer({ filename: file, disableWAL: true })))
