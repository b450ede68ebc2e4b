/** Migrates a database file to the newest schema. Loaded only if a file is created or migrated. */
import * as Migrator from "@effect/sql/Migrator"
import * as SqlClient from "@effect/sql/SqlClient"
import * as SqliteClient from "@effect/sql-sqlite-node/SqliteClient"
import { Effect } from "effect"
import { type Format, type Migration, migrationsTable } from "../Connection.ts"

/** The name of the migration to a schema version: `0001_first_release`. */
const keyOf = ({ name }: Migration, index: number): string => `${String(index + 1).padStart(4, "0")}_${name}`

/**
 * Runs the missing migrations of a database on a separate connection, and checkpoints them into the file. All of them
 * are applied together or not at all. The caller has checked that the file is ours, or missing.
 */
export const migrate = (
  file: string,
  { applicationId, migrations }: Pick<Format, "applicationId" | "migrations">
): Effect.Effect<void, unknown> =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const run = (texts: ReadonlyArray<string>) => Effect.forEach(texts, text => sql.unsafe(text), { discard: true })
    const steps = migrations.map((migration, index) => {
      const marks = [`PRAGMA application_id = ${applicationId}`, `PRAGMA user_version = ${index + 1}`]
      return [keyOf(migration, index), run([...migration.statements, ...marks])] as const
    })
    yield* Migrator.make({})({ loader: Migrator.fromRecord(Object.fromEntries(steps)), table: migrationsTable })
    yield* run(["PRAGMA wal_checkpoint(TRUNCATE)"])
  }).pipe(Effect.provide(SqliteClient.layer({ filename: file, disableWAL: true })))
