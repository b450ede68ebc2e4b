/** The data of the fastify peer: versions, tombstones and a change log in SQLite, one transaction per write. */
import Database from "better-sqlite3"

export interface Entry {
  readonly namespace: string
  readonly key: string
  readonly value: unknown
  readonly version: number
  readonly updatedBy: string
  readonly updatedAt: number
  readonly expiresAt: number | null
}

export interface Change {
  readonly seq: number
  readonly op: "set" | "delete"
  readonly namespace: string
  readonly key: string
  readonly value: unknown
  readonly version: number
  readonly actor: string
  readonly timestamp: number
  readonly tenantId: string
}

export type Operation =
  | { readonly op: "set"; readonly namespace: string; readonly key: string; readonly value: unknown }
  | { readonly op: "delete"; readonly namespace: string; readonly key: string }

interface EntryRow extends Omit<Entry, "value"> {
  readonly value: string
}

interface ChangeRow extends Omit<Change, "value"> {
  readonly value: string | null
}

const schema = `
  CREATE TABLE IF NOT EXISTS entries (
    namespace TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, version INTEGER NOT NULL,
    updatedBy TEXT NOT NULL, updatedAt INTEGER NOT NULL, expiresAt INTEGER, PRIMARY KEY (namespace, key)
  ) WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS tombstones (
    namespace TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (namespace, key)
  ) WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS changes (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, op TEXT NOT NULL, namespace TEXT NOT NULL, key TEXT NOT NULL, value TEXT,
    version INTEGER NOT NULL, actor TEXT NOT NULL, timestamp INTEGER NOT NULL, tenantId TEXT NOT NULL
  );
  CREATE INDEX IF NOT EXISTS changes_by_tenant ON changes (tenantId, seq);
`

const tenantOf = (namespace: string): string => /^tenant:([^/]*)/.exec(namespace)?.[1] ?? ""

const statementsOf = (db: Database.Database) => ({
  getEntry: db.prepare<[string, string], EntryRow>("SELECT * FROM entries WHERE namespace = ? AND key = ?"),
  listEntries: db.prepare<[string, string, number], EntryRow>(
    "SELECT * FROM entries WHERE namespace = ? AND key >= ? ORDER BY key LIMIT ?"
  ),
  putEntry: db.prepare<EntryRow>(
    "INSERT OR REPLACE INTO entries VALUES (@namespace, @key, @value, @version, @updatedBy, @updatedAt, @expiresAt)"
  ),
  dropEntry: db.prepare<[string, string]>("DELETE FROM entries WHERE namespace = ? AND key = ?"),
  getTombstone: db.prepare<[string, string], { readonly version: number }>(
    "SELECT version FROM tombstones WHERE namespace = ? AND key = ?"
  ),
  putTombstone: db.prepare<[string, string, number]>("INSERT OR REPLACE INTO tombstones VALUES (?, ?, ?)"),
  dropTombstone: db.prepare<[string, string]>("DELETE FROM tombstones WHERE namespace = ? AND key = ?"),
  addChange: db.prepare<Omit<ChangeRow, "seq">>(
    `INSERT INTO changes (op, namespace, key, value, version, actor, timestamp, tenantId)
     VALUES (@op, @namespace, @key, @value, @version, @actor, @timestamp, @tenantId)`
  ),
  allChanges: db.prepare<[number, number], ChangeRow>("SELECT * FROM changes WHERE seq > ? ORDER BY seq LIMIT ?"),
  tenantChanges: db.prepare<[string, number, number], ChangeRow>(
    "SELECT * FROM changes WHERE tenantId = ? AND seq > ? ORDER BY seq LIMIT ?"
  )
})

const entryOf = (row: EntryRow): Entry => ({ ...row, value: JSON.parse(row.value) })

export const open = (file: string) => {
  const db = new Database(file)
  db.pragma("journal_mode = WAL")
  db.pragma("synchronous = FULL")
  db.exec(schema)

  const {
    getEntry,
    listEntries,
    putEntry,
    dropEntry,
    getTombstone,
    putTombstone,
    dropTombstone,
    addChange,
    allChanges,
    tenantChanges
  } = statementsOf(db)

  const set = (namespace: string, key: string, value: unknown, actor: string): Entry => {
    const before = getEntry.get(namespace, key)
    const tombstone = before === undefined ? getTombstone.get(namespace, key) : undefined
    const version = (before?.version ?? tombstone?.version ?? 0) + 1
    const timestamp = Date.now()
    const text = JSON.stringify(value)
    const entry = { namespace, key, version, updatedBy: actor, updatedAt: timestamp, expiresAt: null }
    putEntry.run({ ...entry, value: text })
    if (tombstone !== undefined) dropTombstone.run(namespace, key)
    addChange.run({ op: "set", namespace, key, value: text, version, actor, timestamp, tenantId: tenantOf(namespace) })
    return { ...entry, value }
  }

  const remove = (namespace: string, key: string, actor: string): boolean => {
    const before = getEntry.get(namespace, key)
    if (before === undefined) return false
    const version = before.version + 1
    dropEntry.run(namespace, key)
    putTombstone.run(namespace, key, version)
    const timestamp = Date.now()
    const tenantId = tenantOf(namespace)
    addChange.run({ op: "delete", namespace, key, value: null, version, actor, timestamp, tenantId })
    return true
  }

  const apply = (operation: Operation, actor: string) =>
    operation.op === "set"
      ? { version: set(operation.namespace, operation.key, operation.value, actor).version }
      : { deleted: remove(operation.namespace, operation.key, actor) }

  return {
    get: (namespace: string, key: string): Entry | undefined => {
      const row = getEntry.get(namespace, key)
      return row === undefined ? undefined : entryOf(row)
    },
    list: (namespace: string, prefix: string, limit: number): ReadonlyArray<Entry> =>
      listEntries
        .all(namespace, prefix, limit)
        .filter(row => row.key.startsWith(prefix))
        .map(entryOf),
    set: db.transaction(set),
    remove: db.transaction(remove),
    batch: db.transaction((operations: ReadonlyArray<Operation>, actor: string) =>
      operations.map(operation => apply(operation, actor))
    ),
    changes: (tenant: string, after: number, limit: number): ReadonlyArray<Change> => {
      const rows = tenant === "" ? allChanges.all(after, limit) : tenantChanges.all(tenant, after, limit)
      return rows.map(row => ({ ...row, value: row.value === null ? null : JSON.parse(row.value) }))
    }
  }
}
