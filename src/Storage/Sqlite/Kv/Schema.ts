/** The format of the database of the key-value store. */
import type { Format, Migration } from "../Database/Connection.ts"

/**
 * The tables of the key-value store. Columns that may be large come last, so that the others can be read without them.
 * Tombstones have a separate table, so that lists never scan deleted keys.
 */
const migrations: ReadonlyArray<Migration> = [
  {
    name: "first_release",
    statements: [
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
      "CREATE INDEX changes_by_tenant ON changes (tenant, seq) WHERE tenant <> ''",
      // The epoch of the log. While another store is copied into this one, the id of that.
      "CREATE TABLE metadata (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
      // The number of rows of `entries` in each namespace. The writer maintains it.
      "CREATE TABLE namespaces (namespace TEXT NOT NULL PRIMARY KEY, entries INTEGER NOT NULL) STRICT, WITHOUT ROWID",
      // The numbers of namespaces and entries of each tenant, and of those without a tenant. The writer maintains it.
      `CREATE TABLE tenants (
        tenant TEXT NOT NULL PRIMARY KEY,
        namespaces INTEGER NOT NULL,
        entries INTEGER NOT NULL
      ) STRICT, WITHOUT ROWID`,
      // Rows are ordered by the bytes of all rows up to each.
      `CREATE TABLE remembered_writes (
        up_to INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        digest TEXT NOT NULL,
        kept_at INTEGER NOT NULL,
        outcome TEXT NOT NULL,
        tenant TEXT NOT NULL DEFAULT ''
      ) STRICT`,
      "CREATE INDEX remembered_writes_by_tenant ON remembered_writes (tenant, up_to)",
      // The bytes of each tenant, and the position of its last record. The writer maintains it.
      `CREATE TABLE remembered_tenants (
        tenant TEXT NOT NULL PRIMARY KEY,
        bytes INTEGER NOT NULL,
        up_to INTEGER NOT NULL
      ) STRICT, WITHOUT ROWID`
    ]
  }
]

/** The database of the key-value store; its application id is `CWKV`. */
export const format: Format = {
  name: "kv",
  applicationId: 0x43574b56,
  migrations,
  log: { lastSeq: "SELECT max(seq) FROM changes" }
}

/** The SQL equivalent of `tenantOf` for a column or an expression. */
export const tenantOfColumn = (namespace: string): string =>
  `CASE WHEN ${namespace} GLOB 'tenant:*' THEN substr(${namespace}, 8, instr(substr(${namespace}, 8) || '/', '/') - 1)
   ELSE '' END`

/** Counts all entries again, after rows were inserted without the writer. */
export const recount = `DELETE FROM namespaces;
  INSERT INTO namespaces (namespace, entries) SELECT namespace, count(*) FROM entries GROUP BY namespace;
  DELETE FROM tenants;
  INSERT INTO tenants (tenant, namespaces, entries)
    SELECT ${tenantOfColumn("namespace")}, count(*), sum(entries) FROM namespaces GROUP BY 1`
