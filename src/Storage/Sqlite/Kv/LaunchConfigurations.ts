/**
 * Schema 2 of the key-value store: environments and deployments of sessions move to the session database beside it, as
 * they must not be readable by all who may read the store.
 */
import { dirname } from "node:path"
import { Context, Effect, Scope } from "effect"
import { openForWriting } from "../Database/Connection.ts"
import { fileOf } from "../Database/Format.ts"
import { type Migration, SqlClient } from "../Database/Migrations.ts"
import { open } from "../Database/Opening.ts"
import { format } from "../SessionEvents/Format.ts"

interface Configured {
  readonly rowid: number
  readonly session: string
  readonly environment: string | null
  readonly deployment: string | null
}

/** Records that are copied in one transaction; each may have a mebibyte. */
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

/** A record without the parts that are moved, and with their names. */
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

/** Without its context: another SQL client would find the transaction of this migration there and join it. */
const openApart = (directory: string) =>
  Effect.mapInputContext(open(directory, format), (context: Context.Context<Scope.Scope>) =>
    Context.make(Scope.Scope, Context.get(context, Scope.Scope))
  )

/** Copies the parts into the session database. What that has already is newer. */
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

/**
 * Copies first and removes then, so that an interrupted run can be repeated. Entries and their change records keep their
 * versions and sequence numbers; only the members are removed, and overwritten on the disk.
 */
export const migration: Migration = {
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
