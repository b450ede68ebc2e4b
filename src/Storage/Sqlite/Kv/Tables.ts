import Database from "better-sqlite3"
import type { KeyState, Step } from "../../../Kv/Write.ts"
import { Away, applicationId, checkPlace, closeForGood, identityOf, schemaVersion } from "../Database/FileIdentity.ts"
import { ChangeRows } from "./ChangeRows.ts"

interface Tail {
  readonly seq: number
  readonly timestamp: number
}

/** An entry, and where its row is until the end of the transaction: a vacuum gives rows other numbers. */
interface EntryState extends KeyState {
  readonly present: true
  readonly rowid: number
}

interface Tombstone extends KeyState {
  readonly present: false
}

/** What the connection knows of a key. */
export type RowState = EntryState | Tombstone

/** An entry that has run out. */
export interface DueEntry {
  readonly namespace: string
  readonly key: string
  readonly version: number
}

const MiB = 1024 * 1024

/**
 * The one connection that writes: prepared statements over the tables, and where its files lay when it was opened.
 *
 * Statements throw `SqliteError`; nothing is caught here.
 */
export class WriterConnection {
  readonly db: Database.Database
  /** Which files are open, to notice when others stand in their place. */
  readonly databaseId: string | undefined
  readonly logId: string | undefined
  private readonly statements: ReturnType<typeof prepare>
  private readonly changes: ChangeRows

  constructor(readonly file: string) {
    this.db = new Database(file, { fileMustExist: true, timeout: 250 })
    try {
      configure(this.db, file)
      this.statements = prepare(this.db)
      this.changes = new ChangeRows(this.db)
      // No more than the schema: the service must open also where a page of a table cannot be read.
      this.db.prepare("SELECT count(*) FROM sqlite_schema").get()
      // Where SQLite finds no word on it, a write-ahead log that is opened again goes down to NORMAL at its first read.
      const synchronous = this.db.pragma("synchronous", { simple: true })
      if (synchronous !== 2) throw new Away(`${file} cannot be opened with synchronous = FULL`, "failed")
      this.databaseId = identityOf(file)
      this.logId = identityOf(`${file}-wal`)
    } catch (error) {
      this.db.close()
      throw error
    }
  }

  /** Throws where the open files are no longer those that bear their names. Returns the size of the log. */
  checkPlace(): number {
    return checkPlace(this.file, this)
  }

  /** The end of the log. */
  tail(): Tail {
    return this.statements.tail.get() ?? { seq: 0, timestamp: 0 }
  }

  stateOf(namespace: string, key: string): RowState | undefined {
    const row = this.statements.entryState.get(namespace, key)
    if (row !== undefined) return { version: row[1], present: true, expiresAt: row[2], rowid: row[0] }
    const version = this.statements.tombstone.get(namespace, key)
    return version === undefined ? undefined : { version, present: false, expiresAt: null }
  }

  /** Applies a step. Its record is in the log by the end of the transaction. */
  apply(step: Step<RowState>, seq: number, timestamp: number): void {
    const { actor, key, namespace, op, version } = step
    if (step.op === "set") this.set(step, timestamp)
    else {
      this.statements.deleteEntry.run(namespace, key)
      this.statements.bury.run(namespace, key, version, seq)
    }
    const value = step.op === "set" ? step.value : null
    this.changes.add({ seq, op, namespace, key, value, version, actor, timestamp })
  }

  /** Entries that have run out at `now`, those first that ran out first. */
  due(now: number, limit: number): ReadonlyArray<DueEntry> {
    return this.statements.due.all(now, limit)
  }

  /**
   * Removes the log's oldest records from before a time, at most `limit` and never the newest, with the tombstones
   * that they made. As `seq` is dense, how many were removed follows from the first that is left.
   */
  trim(before: number, limit: number): number {
    const { lastTrimmable } = this.statements.lastTrimmable.get(limit, before) ?? { lastTrimmable: null }
    if (lastTrimmable === null) return 0
    const upTo = Math.min(lastTrimmable, this.tail().seq - 1)
    this.statements.dropTombstones.run(upTo)
    return this.statements.dropChanges.run(upTo).changes
  }

  begin(): void {
    this.statements.begin.run()
  }

  commit(): void {
    this.changes.flush()
    this.statements.commit.run()
  }

  /** Gives a transaction up, if there is still one after an error. */
  rollback(): void {
    this.changes.clear()
    if (this.db.inTransaction) this.statements.rollback.run()
  }

  /**
   * Copies all of the write-ahead log into the database file, flushes that, and empties the log.
   * Returns whether it could: not while others read an older snapshot.
   */
  checkpoint(): boolean {
    const [row] = this.db.pragma("wal_checkpoint(TRUNCATE)") as ReadonlyArray<{ readonly busy: number }>
    return row?.busy === 0
  }

  /** Drops what it remembers of pages, since they may lie well on the disk by now. */
  forgetPages(): void {
    if (this.db.open && !this.db.inTransaction) this.db.pragma("shrink_memory")
  }

  close(): void {
    this.db.close()
  }

  /** As `close`, when nobody else of this process has the file open. */
  closeForGood(): void {
    closeForGood(this.db)
  }

  private set(step: Extract<Step<RowState>, { op: "set" }>, timestamp: number): void {
    const { namespace, key, value, version, actor, expiresAt } = step
    const { insert, unbury } = this.statements
    if (version > 1) {
      const before = step.before ?? this.stateOf(namespace, key)
      if (before?.present === true) return this.update(before, step, timestamp)
      unbury.run(namespace, key)
    }
    insert.run(namespace, key, version, actor, timestamp, expiresAt, value)
  }

  private update(entry: EntryState, step: Extract<Step, { op: "set" }>, timestamp: number): void {
    const { value, version, actor, expiresAt } = step
    const { update, updateExpiring } = this.statements
    const { changes } =
      entry.expiresAt === null && expiresAt === null
        ? update.run(value, version, actor, timestamp, entry.rowid)
        : updateExpiring.run(value, version, actor, timestamp, expiresAt, entry.rowid)
    if (changes !== 1) throw new Error(`the row ${entry.rowid} of an entry is gone`)
  }
}

const configure = (db: Database.Database, file: string): void => {
  const id = db.pragma("application_id", { simple: true })
  const version = db.pragma("user_version", { simple: true })
  if (id !== applicationId) throw new Away(`${file} is not a database of this store`, "failed")
  if (version !== schemaVersion) {
    throw new Away(`${file} has schema ${version}, and this version works with ${schemaVersion}`, "failed")
  }
  const mode = db.pragma("journal_mode = WAL", { simple: true })
  if (mode !== "wal") throw new Away(`${file} cannot be opened in WAL mode`, "failed")
  db.pragma("synchronous = FULL")
  // Four times what SQLite takes by itself, 16 MiB: pages that are written often are copied back less often.
  db.pragma("wal_autocheckpoint = 4000")
  db.pragma(`journal_size_limit = ${64 * MiB}`)
  db.pragma("cache_size = -8192")
  db.pragma("mmap_size = 0")
}

const prepare = (db: Database.Database) => ({
  begin: db.prepare("BEGIN IMMEDIATE"),
  commit: db.prepare("COMMIT"),
  rollback: db.prepare("ROLLBACK"),
  tail: db.prepare<[], Tail>("SELECT seq, timestamp FROM changes ORDER BY seq DESC LIMIT 1"),
  entryState: db
    .prepare<[string, string], [rowid: number, version: number, expiresAt: number | null]>(
      "SELECT rowid, version, expires_at FROM entries WHERE namespace = ? AND key = ?"
    )
    .raw(),
  tombstone: db
    .prepare<[string, string], number>("SELECT version FROM tombstones WHERE namespace = ? AND key = ?")
    .pluck(),
  // Where there is no expiry and was none, its index need not be looked at.
  update: db.prepare("UPDATE entries SET value = ?, version = ?, updated_by = ?, updated_at = ? WHERE rowid = ?"),
  updateExpiring: db.prepare(
    "UPDATE entries SET value = ?, version = ?, updated_by = ?, updated_at = ?, expires_at = ? WHERE rowid = ?"
  ),
  insert: db.prepare(
    "INSERT INTO entries (namespace, key, version, updated_by, updated_at, expires_at, value) VALUES (?, ?, ?, ?, ?, ?, ?)"
  ),
  deleteEntry: db.prepare("DELETE FROM entries WHERE namespace = ? AND key = ?"),
  bury: db.prepare("INSERT INTO tombstones (namespace, key, version, seq) VALUES (?, ?, ?, ?)"),
  unbury: db.prepare("DELETE FROM tombstones WHERE namespace = ? AND key = ?"),
  due: db.prepare<[number, number], DueEntry>(
    "SELECT namespace, key, version FROM entries WHERE expires_at <= ? ORDER BY expires_at LIMIT ?"
  ),
  lastTrimmable: db.prepare<[number, number], { readonly lastTrimmable: number | null }>(
    "SELECT max(seq) AS lastTrimmable FROM (SELECT seq, timestamp FROM changes ORDER BY seq LIMIT ?) WHERE timestamp < ?"
  ),
  dropChanges: db.prepare("DELETE FROM changes WHERE seq <= ?"),
  dropTombstones: db.prepare("DELETE FROM tombstones WHERE seq <= ?")
})
