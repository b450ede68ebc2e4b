import * as Migrator from "@effect/sql/Migrator"
import * as SqlClient from "@effect/sql/SqlClient"
import * as SqliteClient from "@effect/sql-sqlite-node/SqliteClient"
import { Effect } from "effect"
import { applicationId, migrationsTable } from "./StoreFile.ts"

/** Runs statements of a migration, in its transaction. */
const statements = (...texts: ReadonlyArray<string>) =>
  Effect.flatMap(SqlClient.SqlClient, sql => Effect.forEach(texts, text => sql.unsafe(text), { discard: true }))

/**
 * Columns that may be large come last, so that reading the others does not walk through them. Tombstones have a table
 * of their own, so that lists never wade through deleted keys.
 */
const initial = statements(
  `PRAGMA application_id = ${applicationId}`,
  "PRAGMA user_version = 1",
  `CREATE TABLE entries (
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    version INTEGER NOT NULL,
    updated_by TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    value TEXT NOT NULL,
    UNIQUE (namespace, key)
  ) STRICT`,
  "CREATE INDEX entries_expiring ON entries (expires_at) WHERE expires_at IS NOT NULL",
  `CREATE TABLE tombstones (
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    version INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (namespace, key)
  ) STRICT, WITHOUT ROWID`,
  "CREATE INDEX tombstones_by_seq ON tombstones (seq)",
  `CREATE TABLE changes (
    seq INTEGER PRIMARY KEY,
    op TEXT NOT NULL,
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    version INTEGER NOT NULL,
    actor TEXT NOT NULL,
    timestamp INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    value TEXT
  ) STRICT`,
  "CREATE INDEX changes_by_tenant ON changes (tenant, seq) WHERE tenant <> ''"
)

/** All migrations; the number of the last is the schema version, which each writes into the file's header. */
const migrations = Migrator.fromRecord({ "0001_initial": initial })

/**
 * Brings a database up to date and into its file, on a connection that lives no longer than this.
 * Whoever calls it has made sure that the file is ours, or not there.
 */
export const migrate = (file: string): Effect.Effect<void, unknown> =>
  Effect.flatMap(SqlClient.SqlClient, sql =>
    Effect.zipRight(
      Migrator.make({})({ loader: migrations, table: migrationsTable }),
      sql.unsafe("PRAGMA wal_checkpoint(TRUNCATE)")
    )
  ).pipe(Effect.provide(SqliteClient.layer({ filename: file, disableWAL: true })), Effect.asVoid)
