/**
 * The writer of the key-value store: what it does with the tables, and how writes and outcomes are packed.
 */
import type Database from "better-sqlite3"
import * as Either from "effect/Either"
import type { JsonText } from "../../../Json/JsonText.ts"
import type { StoredChange } from "../../../Kv/Change.ts"
import { expiryActor, tenantOf } from "../../../Kv/Entry.ts"
import {
  type Applied,
  type KeyState,
  type Operation,
  type PlannedResult,
  type Precondition,
  plan,
  type Refused,
  type Step,
  type Write
} from "../../../Kv/Write.ts"
import type { Format } from "../Database/Connection.ts"
import type { Codec, Packer, Unpacker } from "../Database/Messages.ts"
import type { TaskSteps, WriterPlugin } from "../Database/Writer.ts"

/** The database of the key-value store; its application id is `CWKV`. */
export const format: Format = {
  name: "kv",
  applicationId: 0x43574b56,
  schemaVersion: 3,
  log: { lastSeq: "SELECT max(seq) FROM changes" },
  load: () => import("./Schema.ts")
}

/** What became of one write of a group. */
export type Outcome = { readonly _tag: "Committed"; readonly committed: Applied } | Refused

interface Tail {
  readonly seq: number
  readonly timestamp: number
}

/** An entry, and its row until the end of the transaction: VACUUM renumbers rows. */
interface EntryState extends KeyState {
  readonly present: true
  readonly rowid: number
}

interface Tombstone extends KeyState {
  readonly present: false
}

/** What is stored of a key. */
type RowState = EntryState | Tombstone

/** An entry that has expired. */
interface DueEntry {
  readonly namespace: string
  readonly key: string
  readonly version: number
}

class Tables {
  private readonly statements: ReturnType<typeof prepare>
  private readonly changes: ChangeRows

  constructor(db: Database.Database) {
    this.statements = prepare(db)
    this.changes = new ChangeRows(db)
  }

  /** Decides on each write by itself: one that is refused leaves the others as they are. */
  apply(writes: ReadonlyArray<Write>, now: number): ReadonlyArray<Outcome> {
    const tail = this.begin()
    const timestamp = Math.max(now, tail.timestamp)
    let seq = tail.seq
    const outcomes = writes.map((write): Outcome => {
      const planned = plan(write, (namespace, key) => this.stateOf(namespace, key), now)
      if (Either.isLeft(planned)) return planned.left
      for (const step of planned.right.steps) this.applyStep(step, ++seq, timestamp)
      return { _tag: "Committed", committed: { results: planned.right.results, timestamp, lastSeq: seq } }
    })
    this.changes.flush()
    return outcomes
  }

  readonly tasks: { readonly expire: TaskSteps<DueEntry>; readonly trim: TaskSteps<number> } = {
    /** Entries that have expired are deleted, those first that expired first. */
    expire: {
      due: (now, limit) => this.statements.due.all(now, limit),
      run: (due, now) => {
        const tail = this.begin()
        const timestamp = Math.max(now, tail.timestamp)
        for (const [index, { namespace, key, version }] of due.entries()) {
          const step: Step<RowState> = { op: "delete", namespace, key, version: version + 1, actor: expiryActor }
          this.applyStep(step, tail.seq + 1 + index, timestamp)
        }
        this.changes.flush()
        return due.length
      }
    },
    /**
     * The oldest records of the log are removed, but never the newest, with the tombstones that they made. As `seq` is
     * dense, the first that is left tells how many were removed.
     */
    trim: {
      due: (before, limit) => {
        const { lastTrimmable } = this.statements.lastTrimmable.get(limit, before) ?? { lastTrimmable: null }
        return lastTrimmable === null ? [] : [Math.min(lastTrimmable, this.tail().seq - 1)]
      },
      run: ([upTo]) => {
        this.statements.dropTombstones.run(upTo)
        return this.statements.dropChanges.run(upTo).changes
      }
    }
  }

  lastSeq(): number {
    return this.tail().seq
  }

  private tail(): Tail {
    return this.statements.tail.get() ?? { seq: 0, timestamp: 0 }
  }

  /** Begins to add records to the log, without those of a transaction that was rolled back. */
  private begin(): Tail {
    this.changes.clear()
    return this.tail()
  }

  private stateOf(namespace: string, key: string): RowState | undefined {
    const row = this.statements.entryState.get(namespace, key)
    if (row !== undefined) return { version: row[1], present: true, expiresAt: row[2], rowid: row[0] }
    const version = this.statements.tombstone.get(namespace, key)
    return version === undefined ? undefined : { version, present: false, expiresAt: null }
  }

  /** Applies a step. Its record is in the log after `flush`. */
  private applyStep(step: Step<RowState>, seq: number, timestamp: number): void {
    const { actor, key, namespace, op, version } = step
    if (step.op === "set") this.set(step, timestamp)
    else {
      this.statements.deleteEntry.run(namespace, key)
      this.statements.insertTombstone.run(namespace, key, version, seq)
    }
    const value = step.op === "set" ? step.value : null
    this.changes.add({ seq, op, namespace, key, value, version, actor, timestamp })
  }

  private set(step: Extract<Step<RowState>, { op: "set" }>, timestamp: number): void {
    const { namespace, key, value, version, actor, expiresAt } = step
    const { deleteTombstone, insert } = this.statements
    if (version > 1) {
      const before = step.before ?? this.stateOf(namespace, key)
      if (before?.present === true) return this.update(before, step, timestamp)
      deleteTombstone.run(namespace, key)
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

const prepare = (db: Database.Database) => ({
  tail: db.prepare<[], Tail>("SELECT seq, timestamp FROM changes ORDER BY seq DESC LIMIT 1"),
  entryState: db
    .prepare<[string, string], [rowid: number, version: number, expiresAt: number | null]>(
      "SELECT rowid, version, expires_at FROM entries WHERE namespace = ? AND key = ?"
    )
    .raw(),
  tombstone: db
    .prepare<[string, string], number>("SELECT version FROM tombstones WHERE namespace = ? AND key = ?")
    .pluck(),
  // An entry that does not expire and did not is not in the index of expiries.
  update: db.prepare("UPDATE entries SET value = ?, version = ?, updated_by = ?, updated_at = ? WHERE rowid = ?"),
  updateExpiring: db.prepare(
    "UPDATE entries SET value = ?, version = ?, updated_by = ?, updated_at = ?, expires_at = ? WHERE rowid = ?"
  ),
  insert: db.prepare(
    "INSERT INTO entries (namespace, key, version, updated_by, updated_at, expires_at, value) VALUES (?, ?, ?, ?, ?, ?, ?)"
  ),
  deleteEntry: db.prepare("DELETE FROM entries WHERE namespace = ? AND key = ?"),
  insertTombstone: db.prepare("INSERT INTO tombstones (namespace, key, version, seq) VALUES (?, ?, ?, ?)"),
  deleteTombstone: db.prepare("DELETE FROM tombstones WHERE namespace = ? AND key = ?"),
  due: db.prepare<[number, number], DueEntry>(
    "SELECT namespace, key, version FROM entries WHERE expires_at <= ? ORDER BY expires_at LIMIT ?"
  ),
  lastTrimmable: db.prepare<[number, number], { readonly lastTrimmable: number | null }>(
    "SELECT max(seq) AS lastTrimmable FROM (SELECT seq, timestamp FROM changes ORDER BY seq LIMIT ?) WHERE timestamp < ?"
  ),
  dropChanges: db.prepare("DELETE FROM changes WHERE seq <= ?"),
  dropTombstones: db.prepare("DELETE FROM tombstones WHERE seq <= ?")
})

/** Rows that one statement inserts; more of them gain nothing. */
const rowsAtOnce = 8

const columns = ["seq", "op", "namespace", "key", "version", "actor", "timestamp", "tenant", "value"] as const

// OR FAIL: SQLite copies no pages to be able to undo the statement, as the transaction is rolled back when it fails.
const insert = (db: Database.Database, rows: number) =>
  db.prepare(
    `INSERT OR FAIL INTO changes (${columns.join(", ")}) VALUES ${Array.from({ length: rows }, () => `(${columns.map(() => "?").join(", ")})`).join(", ")}`
  )

/** Inserts change records into the log, several with each statement. All are there after `flush`. */
export class ChangeRows {
  private readonly insertOne: Database.Statement
  private readonly insertMany: Database.Statement
  private waiting: Array<StoredChange> = []

  constructor(db: Database.Database) {
    this.insertOne = insert(db, 1)
    this.insertMany = insert(db, rowsAtOnce)
  }

  add(change: StoredChange): void {
    if (this.waiting.push(change) < rowsAtOnce) return
    const parameters: Array<unknown> = []
    for (const waiting of this.waiting) pushRow(parameters, waiting)
    this.insertMany.run(parameters)
    this.waiting = []
  }

  flush(): void {
    for (const change of this.waiting) this.insertOne.run(pushRow([], change))
    this.waiting = []
  }

  /** Drops what was not inserted yet. */
  clear(): void {
    this.waiting = []
  }
}

const pushRow = (parameters: Array<unknown>, change: StoredChange): Array<unknown> => {
  const { seq, op, namespace, key, version, actor, timestamp, value } = change
  parameters.push(seq, op, namespace, key, version, actor, timestamp, tenantOf(namespace), value)
  return parameters
}

/** Stands for a value, a tag or a precondition that is absent, and for the tag `"any"`. */
const absent = -1
const anyVersion = -2

const packVersions = (packer: Packer, versions: Precondition["match"]): void => {
  if (versions === undefined) packer.number(absent)
  else if (versions === "any") packer.number(anyVersion)
  else {
    packer.number(versions.length)
    for (const version of versions) packer.number(version)
  }
}

const areVersions = (versions: unknown): boolean =>
  versions === undefined ||
  versions === "any" ||
  (Array.isArray(versions) && versions.every(version => typeof version === "number"))

/** Whether a precondition has its type. One that has not is a bug of its caller, and fails that write alone. */
const isPrecondition = (precondition: Precondition | null): boolean =>
  typeof precondition === "object" &&
  precondition !== null &&
  areVersions(precondition.match) &&
  areVersions(precondition.noneMatch)

const unpackVersions = (unpacker: Unpacker): Precondition["match"] => {
  const length = unpacker.number()
  if (length === absent) return undefined
  return length === anyVersion ? "any" : Array.from({ length }, () => unpacker.number())
}

/** A group is packed by its operations, whose values are texts. Outcomes are packed where the write was committed. */
const codec: Codec<Write, Outcome> = {
  packWrite: (packer, { actor, operations }) => {
    packer.text(actor)
    packer.number(operations.length)
    for (const operation of operations) {
      const { key, namespace, precondition } = operation
      packer.text(namespace)
      packer.text(key)
      if (operation.op === "delete") packer.number(absent)
      else {
        packer.text(operation.value)
        packer.check(operation.expiresAt === null || Number.isFinite(operation.expiresAt))
        packer.number(operation.expiresAt ?? Number.NaN)
      }
      if (precondition === undefined) packer.number(absent)
      else if (!isPrecondition(precondition)) packer.check(false)
      else {
        packer.number(0)
        packVersions(packer, precondition.match)
        packVersions(packer, precondition.noneMatch)
      }
    }
    return true
  },
  unpackWrite: unpacker => {
    const actor = unpacker.text()
    const operations: Array<Operation> = []
    for (let left = unpacker.number(); left > 0; left--) operations.push(unpackOperation(unpacker))
    return { operations, actor }
  },
  packOutcome: (packer, outcome) => {
    if (outcome._tag !== "Committed") return false
    const { lastSeq, results, timestamp } = outcome.committed
    packer.number(timestamp)
    packer.number(lastSeq)
    packer.number(results.length)
    // The version of a set, 0 for a delete, and -1 for a delete of what was absent.
    for (const result of results) packer.number(result.op === "set" ? result.version : result.deleted ? 0 : absent)
    return true
  },
  unpackOutcome: unpacker => {
    const timestamp = unpacker.number()
    const lastSeq = unpacker.number()
    const results: Array<PlannedResult> = []
    for (let left = unpacker.number(); left > 0; left--) {
      const result = unpacker.number()
      results.push(result > 0 ? { op: "set", version: result } : { op: "delete", deleted: result !== absent })
    }
    return { _tag: "Committed", committed: { results, timestamp, lastSeq } }
  }
}

const unpackOperation = (unpacker: Unpacker): Operation => {
  const namespace = unpacker.text()
  const key = unpacker.text()
  if (unpacker.skip(absent)) return { op: "delete", namespace, key, ...unpackPrecondition(unpacker) }
  const value = unpacker.text() as JsonText
  const expiry = unpacker.number()
  const expiresAt = Number.isNaN(expiry) ? null : expiry
  return { op: "set", namespace, key, value, expiresAt, ...unpackPrecondition(unpacker) }
}

const unpackPrecondition = (unpacker: Unpacker): { readonly precondition: Precondition } | undefined => {
  if (unpacker.number() === absent) return undefined
  const match = unpackVersions(unpacker)
  const noneMatch = unpackVersions(unpacker)
  return { precondition: { ...(match && { match }), ...(noneMatch && { noneMatch }) } }
}

/** The writer of the key-value store. */
export const writer: WriterPlugin<Write, Outcome> = { format, tables: db => new Tables(db), codec }
