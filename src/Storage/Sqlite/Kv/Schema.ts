/**
 * The schema of the key-value store, and its migrations.
 */
import { dirname } from "node:path"
import { Context, Effect, Scope } from "effect"
import { fileOf, openForWriting } from "../Database/Connection.ts"
import { fromStatements, type Migration, SqlClient } from "../Database/Migrations.ts"
import { open } from "../Database/Opening.ts"
import { format } from "../SessionEvents/Writer.ts"
import { countTenants } from "./NamespaceCounts.ts"

interface Configured {
  readonly rowid: number
  readonly session: string
  readonly environment: string | null
  readonly deployment: string | null
}

/** The number of records that are copied in one transaction. Each may have a mebibyte. */
const portion = 32

/** Whether a row is a record of a session of schema 1. A text that SQLite does not accept as JSON is not. */
const isRecord = (tenant: string): string =>
  `CASE WHEN namespace = 'tenant:' || ${tenant} || '/sessions' AND json_valid(value)
     THEN json_type(value, '$.environment') = 'object' AND json_type(value, '$.secretNames') = 'array'
       AND json_extract(value, '$.id') = key AND json_extract(value, '$.tenant') = ${tenant}
     ELSE 0 END`

const tenantOfNamespace = "substr(namespace, 8, length(namespace) - 16)"

const environment = "nullif(value -> '$.environment', '{}')"
const deployment = "value -> '$.deployment'"

/** A record without the parts that are moved, but with their names. */
const stripped = `json_set(json_remove(value, '$.environment', '$.deployment'), '$.configured', json(
    CASE
      WHEN ${environment} IS NULL AND ${deployment} IS NULL THEN '[]'
      WHEN ${deployment} IS NULL THEN '["environment"]'
      WHEN ${environment} IS NULL THEN '["deployment"]'
      ELSE '["environment","deployment"]'
    END
  ))`

const configuredRecords = `
  SELECT rowid, ${tenantOfNamespace} || '/' || key AS session, ${environment} AS environment,
    ${deployment} AS deployment
  FROM entries
  WHERE rowid > ? AND namespace GLOB 'tenant:*/sessions' AND ${isRecord(tenantOfNamespace)}
    AND (${environment} IS NOT NULL OR ${deployment} IS NOT NULL)
  ORDER BY rowid LIMIT ${portion}`

/** Without the Effect context: another SQL client would find the transaction of this migration there and join it. */
const openApart = (directory: string) =>
  Effect.mapInputContext(open(directory, format), (context: Context.Context<Scope.Scope>) =>
    Context.make(Scope.Scope, Context.get(context, Scope.Scope))
  )

/** Copies the parts into the session database. Parts that exist there are newer. */
const copyTo = (directory: string, next: (after: number) => Effect.Effect<ReadonlyArray<Configured>, unknown>) =>
  Effect.gen(function* () {
    let rows = yield* next(0)
    if (rows.length === 0) return
    yield* openApart(directory)
    const db = yield* Effect.acquireRelease(
      Effect.sync(() => openForWriting(fileOf(directory, format), format)),
      db => Effect.sync(() => db.close())
    )
    const insert = db.prepare<[string, number, number, string | null, string | null]>(
      `INSERT INTO launch_configurations (session, has_environment, has_deployment, environment, deployment)
       VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
    )
    const insertAll = db.transaction((rows: ReadonlyArray<Configured>) => {
      for (const { deployment, environment, session } of rows) {
        insert.run(session, Number(environment !== null), Number(deployment !== null), environment, deployment)
      }
    })
    while (rows.length > 0) {
      insertAll.immediate(rows)
      rows = yield* next(rows.at(-1)!.rowid)
    }
    db.pragma("wal_checkpoint(TRUNCATE)")
  }).pipe(Effect.scoped)

const MiB = 1024 * 1024

/**
 * A larger database is not rebuilt: that takes about a second for each 100 MiB, and the same space on the disk again.
 */
const maxRebuilt = 512 * MiB

/**
 * Rebuilds a file that had sessions. Schema 2 has removed environments from its rows. Copies of them remain in free
 * space, also of pages that SQLite has reordered, which `secure_delete` does not overwrite.
 */
const rebuild = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const ofSessions = (table: string) => `EXISTS (SELECT 1 FROM ${table} WHERE namespace GLOB 'tenant:*/sessions')`
  const [row] = yield* sql.unsafe<{ readonly hasSessions: number }>(
    `SELECT ${ofSessions("entries")} OR ${ofSessions("tombstones")} AS hasSessions`
  )
  if (row?.hasSessions !== 1) return
  const [size] = yield* sql.unsafe<{ readonly bytes: number }>(
    "SELECT page_count * page_size AS bytes FROM pragma_page_count(), pragma_page_size()"
  )
  if (size === undefined || size.bytes > maxRebuilt) return yield* Effect.fail("it is large")
  yield* sql.unsafe("VACUUM")
}).pipe(
  Effect.catchAll(reason =>
    Effect.logWarning(
      "kv.db was not rebuilt: its free space may have environments of sessions until VACUUM is run with the service stopped"
    ).pipe(Effect.annotateLogs({ reason: String(reason) }))
  )
)

/**
 * Schema 2 of the key-value store: environments and deployments of sessions move to the session database, because
 * readers of the store must not read them.
 *
 * It copies first and removes then, so that an interrupted run can be repeated. Entries and their change records keep
 * their versions and sequence numbers. Only the members are removed, and overwritten on the disk.
 */
const launchConfigurations: Migration = {
  name: "launch_configurations",
  run: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [main] = yield* sql.unsafe<{ readonly file: string }>(
      "SELECT file FROM pragma_database_list WHERE name = 'main'"
    )
    if (main === undefined) return yield* Effect.dieMessage("a database without a file")
    yield* copyTo(dirname(main.file), after => sql.unsafe<Configured>(configuredRecords, [after]))
    yield* sql.unsafe("PRAGMA secure_delete = ON")
    yield* sql.unsafe(
      `UPDATE entries SET value = ${stripped}
       WHERE namespace GLOB 'tenant:*/sessions' AND ${isRecord(tenantOfNamespace)}`
    )
    yield* sql.unsafe(`UPDATE changes SET value = ${stripped} WHERE tenant <> '' AND ${isRecord("tenant")}`)
  })
}

/**
 * The tables of the key-value store. Columns that may be large come last, so that the others can be read without them.
 * Tombstones have a separate table, so that lists never scan deleted keys.
 */
export const migrations: ReadonlyArray<Migration> = [
  fromStatements(
    "initial",
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
  ),
  launchConfigurations,
  {
    ...fromStatements(
      "metadata",
      "CREATE TABLE metadata (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID"
    ),
    prepare: rebuild
  },
  fromStatements(
    "namespaces",
    // The number of rows of `entries` in each namespace. The writer maintains it.
    "CREATE TABLE namespaces (namespace TEXT NOT NULL PRIMARY KEY, entries INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    "INSERT INTO namespaces (namespace, entries) SELECT namespace, count(*) FROM entries GROUP BY namespace"
  ),
  fromStatements(
    "remembered_writes",
    `CREATE TABLE remembered_writes (
      up_to INTEGER PRIMARY KEY,
      id TEXT NOT NULL UNIQUE,
      digest TEXT NOT NULL,
      kept_at INTEGER NOT NULL,
      outcome TEXT NOT NULL
    ) STRICT`
  ),
  fromStatements(
    "remembered_tenants",
    "ALTER TABLE remembered_writes ADD COLUMN tenant TEXT NOT NULL DEFAULT ''",
    "CREATE INDEX remembered_writes_by_tenant ON remembered_writes (tenant, up_to)",
    // The bytes of each tenant, and the position of its last record. The writer maintains it.
    `CREATE TABLE remembered_tenants (
      tenant TEXT NOT NULL PRIMARY KEY,
      bytes INTEGER NOT NULL,
      up_to INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID`,
    `INSERT INTO remembered_tenants (tenant, bytes, up_to)
     SELECT '', sum(256 + length(outcome)), max(up_to) FROM remembered_writes HAVING count(*) > 0`
  ),
  fromStatements(
    "tenants",
    // The numbers of namespaces and entries of each tenant, and of those without a tenant. The writer maintains it.
    `CREATE TABLE tenants (
      tenant TEXT NOT NULL PRIMARY KEY,
      namespaces INTEGER NOT NULL,
      entries INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID`,
    countTenants
  )
]
