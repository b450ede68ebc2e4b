/**
 * The entries of the store as a competent engineer writes them in a day on PostgreSQL: fastify with schemas for
 * requests and answers, and a pool of `pg` with one transaction for each write. `seq` comes from a row that each
 * transaction locks last, so that readers of the log miss nothing; with PEER_LOG=sequence it comes from a sequence, and
 * they may.
 */

import pg from "pg"
import { app, type EntryPath, entryPath, entrySchema, errorSchema, listen, text } from "./FastifyApp.ts"

const isSequence = process.env.PEER_LOG === "sequence"

pg.types.setTypeParser(pg.types.builtins.INT8, Number)
const pool = new pg.Pool({ connectionString: process.env.STORE_URL ?? "", max: 10 })

const schema = `
  CREATE TABLE IF NOT EXISTS entries (
    namespace text NOT NULL, key text NOT NULL, value text NOT NULL, version bigint NOT NULL, updated_by text NOT NULL,
    updated_at bigint NOT NULL, expires_at bigint, PRIMARY KEY (namespace, key)
  );
  CREATE TABLE IF NOT EXISTS tombstones (
    namespace text NOT NULL, key text NOT NULL, version bigint NOT NULL, PRIMARY KEY (namespace, key)
  );
  CREATE TABLE IF NOT EXISTS changes (
    seq bigint PRIMARY KEY, op text NOT NULL, namespace text NOT NULL, key text NOT NULL, value text,
    version bigint NOT NULL, actor text NOT NULL, timestamp bigint NOT NULL, tenant text NOT NULL
  );
  CREATE INDEX IF NOT EXISTS changes_by_tenant ON changes (tenant, seq);
  CREATE TABLE IF NOT EXISTS counter (seq bigint NOT NULL);
  INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT FROM counter);
  CREATE SEQUENCE IF NOT EXISTS numbers`

const columns = `namespace, key, value, version, updated_by AS "updatedBy", updated_at AS "updatedAt", expires_at AS "expiresAt"`

const statement = (name: string, text: string) => (values: ReadonlyArray<unknown>) => ({
  name,
  text,
  values: [...values]
})
const getEntry = statement("get", `SELECT ${columns} FROM entries WHERE namespace = $1 AND key = $2`)
const dropTombstone = statement(
  "undelete",
  "DELETE FROM tombstones WHERE namespace = $1 AND key = $2 RETURNING version"
)
const setEntry = statement(
  "set",
  `INSERT INTO entries VALUES ($1, $2, $3, $4 + 1, $5, $6, NULL)
   ON CONFLICT (namespace, key) DO UPDATE SET value = excluded.value, version = entries.version + 1,
     updated_by = excluded.updated_by, updated_at = excluded.updated_at, expires_at = NULL
   RETURNING ${columns}`
)
const nextSeq = statement(
  "next",
  isSequence ? "SELECT nextval('numbers') AS seq" : "UPDATE counter SET seq = seq + 1 RETURNING seq"
)
const addChange = statement("log", "INSERT INTO changes VALUES ($1, 'set', $2, $3, $4, $5, $6, $7, $8)")

const tenantOf = (namespace: string): string => /^tenant:([^/]*)/.exec(namespace)?.[1] ?? ""

const entryOf = <A extends { readonly value: string; readonly version: number }>(row: A) => ({
  ...row,
  value: JSON.parse(row.value) as unknown
})

const set = async (namespace: string, key: string, value: unknown, actor: string) => {
  const client = await pool.connect()
  try {
    await client.query("BEGIN")
    const now = Date.now()
    const text = JSON.stringify(value)
    const tombstones = await client.query<{ version: number }>(dropTombstone([namespace, key]))
    const before = tombstones.rows[0]?.version ?? 0
    const { rows } = await client.query(setEntry([namespace, key, text, before, actor, now]))
    const next = await client.query<{ seq: number }>(nextSeq([]))
    const { version } = rows[0]
    await client.query(addChange([next.rows[0]?.seq, namespace, key, text, version, actor, now, tenantOf(namespace)]))
    await client.query("COMMIT")
    return entryOf(rows[0])
  } catch (error) {
    await client.query("ROLLBACK")
    throw error
  } finally {
    client.release()
  }
}

app.get<{ Params: EntryPath }>(
  "/api/v1/kv/:namespace/:key",
  { schema: { params: entryPath, response: { 200: entrySchema, 404: errorSchema } } },
  async (request, reply) => {
    const { rows } = await pool.query(getEntry([request.params.namespace, request.params.key]))
    if (rows.length === 0) return reply.code(404).send({ error: "Not found" })
    return reply.header("etag", `"${rows[0].version}"`).send(entryOf(rows[0]))
  }
)

app.put<{ Params: EntryPath; Body: { value: unknown; actor?: string } }>(
  "/api/v1/kv/:namespace/:key",
  {
    schema: {
      params: entryPath,
      body: { type: "object", required: ["value"], properties: { value: {}, actor: text } },
      response: { 200: entrySchema }
    }
  },
  async (request, reply) => {
    const { key, namespace } = request.params
    const entry = await set(namespace, key, request.body.value, request.body.actor ?? "api")
    return reply.header("etag", `"${entry.version}"`).send(entry)
  }
)

app.get("/ready", () => ({ ok: true }))

await pool.query(`BEGIN; SELECT pg_advisory_xact_lock(2); ${schema}; COMMIT`)
await listen()
