/** The tables of the key-value store as its writer changes them. */
import type Database from "better-sqlite3"
import * as Either from "effect/Either"
import { expiryActor, tenantOf } from "../../../Kv/Entry.ts"
import * as Idempotency from "../../../Kv/Idempotency.ts"
import type { Comparison } from "../../../Kv/IdempotencyShares.ts"
import {
  type Applied,
  type IdempotencyKey,
  type KeyReused,
  type KeyState,
  type PrefixDelete,
  plan,
  type Refused,
  type Step,
  type Write,
  writeOfPrefix
} from "../../../Kv/Write.ts"
import * as KeyOrder from "../../KeyOrder.ts"
import type { TaskSteps, WriterPlugin } from "../Database/Writer.ts"
import { IdempotencyRecords } from "./IdempotencyRecords.ts"
import { afterAllTexts, visible } from "./Printed.ts"
import { format } from "./Schema.ts"

export type Outcome = Done | Refused | KeyReused

interface Done {
  readonly _tag: "Committed"
  readonly committed: Applied
  /** The result of the comparison of tenants that its group caused. */
  readonly comparison?: Comparison
}

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

type RowState = EntryState | Tombstone

interface DueEntry {
  readonly namespace: string
  readonly key: string
  readonly version: number
}

class Tables {
  private readonly statements: ReturnType<typeof prepare>
  private readonly counts: NamespaceCounts
  private readonly idempotencyRecords: IdempotencyRecords

  constructor(db: Database.Database, idempotencyBytes: number) {
    this.statements = prepare(db)
    this.counts = new NamespaceCounts(db)
    this.idempotencyRecords = new IdempotencyRecords(db, idempotencyBytes)
  }

  /** Decides each write separately: a refused write does not affect the others. */
  apply(writes: ReadonlyArray<Write>, now: number): ReadonlyArray<Outcome> {
    const tail = this.begin()
    const timestamp = Math.max(now, tail.timestamp)
    let seq = tail.seq
    const outcomes = writes.map((given): Outcome => {
      const key = given.idempotencyKey
      const before = key && this.recalled(given, key, now)
      if (before !== undefined) return before
      const prefixDelete = given.prefixDelete && this.planPrefixDelete(given.prefixDelete, given.actor, now)
      const planned = plan(prefixDelete?.write ?? given, (namespace, key) => this.stateOf(namespace, key), now)
      if (Either.isLeft(planned)) return planned.left
      for (const step of planned.right.steps) this.applyStep(step, ++seq, timestamp)
      const applied = { results: planned.right.results, timestamp, lastSeq: seq }
      const committed = prefixDelete === undefined ? applied : { ...applied, more: prefixDelete.more }
      if (key !== undefined) this.idempotencyRecords.keep(key, Idempotency.encode(given, committed), now)
      return { _tag: "Committed", committed }
    })
    this.counts.flush()
    const comparison = this.idempotencyRecords.flush(now)
    return comparison === undefined ? outcomes : withComparison(writes, outcomes, comparison)
  }

  /** The outcome of an earlier write with the same key; `undefined` if none is stored. */
  private recalled(write: Write, { digest, id }: IdempotencyKey, now: number): Outcome | undefined {
    const found = this.idempotencyRecords.find(id, now)
    if (found === undefined) return undefined
    return found.digest === digest
      ? { _tag: "Committed", committed: Idempotency.decode(write, found.outcome) }
      : { _tag: "KeyReused" }
  }

  readonly tasks: { readonly expire: TaskSteps<DueEntry>; readonly trim: TaskSteps<number> } = {
    /** Deletes expired entries, in the order of their expiry. */
    expire: {
      due: (now, limit) => this.statements.due.all(now, limit),
      run: (due, now) => {
        const tail = this.begin()
        const timestamp = Math.max(now, tail.timestamp)
        for (const [index, { namespace, key, version }] of due.entries()) {
          const step: Step<RowState> = { op: "delete", namespace, key, version: version + 1, actor: expiryActor }
          this.applyStep(step, tail.seq + 1 + index, timestamp)
        }
        this.counts.flush()
        return due.length
      }
    },
    /**
     * Removes the oldest records of the log, but never the newest, with the tombstones that they created. `seq` is
     * dense, so that the first remaining one shows how many were removed.
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

  /** Starts a transaction, without the records of one that was rolled back. */
  private begin(): Tail {
    this.counts.clear()
    this.idempotencyRecords.clear()
    return this.tail()
  }

  private stateOf(namespace: string, key: string): RowState | undefined {
    const row = this.statements.entryState.get(namespace, key)
    if (row !== undefined) return { version: row[1], present: true, expiresAt: row[2], rowid: row[0] }
    const version = this.statements.tombstone.get(namespace, key)
    return version === undefined ? undefined : { version, present: false, expiresAt: null }
  }

  /** The write of a delete of a prefix, after the writes before it. */
  private planPrefixDelete(prefixDelete: PrefixDelete, actor: string, now: number) {
    const { high, low } = KeyOrder.rangeOf(prefixDelete) ?? { low: "", high: "" }
    const parameters = [prefixDelete.namespace, low, high ?? afterAllTexts, now, prefixDelete.limit + 1] as const
    return writeOfPrefix(prefixDelete, this.statements.keys.all(...parameters), actor)
  }

  /** Applies a step and adds its record to the log. */
  private applyStep(step: Step<RowState>, seq: number, timestamp: number): void {
    const { actor, key, namespace, op, version } = step
    if (step.op === "set") this.set(step, timestamp)
    else {
      this.counts.add(namespace, -this.statements.deleteEntry.run(namespace, key).changes)
      this.statements.insertTombstone.run(namespace, key, version, seq)
    }
    const value = step.op === "set" ? step.value : null
    this.statements.record.run(seq, op, namespace, key, version, actor, timestamp, tenantOf(namespace), value)
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
    this.counts.add(namespace, 1)
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

/** Adds the result of the comparison of tenants to the outcome of a write that added a record. */
const withComparison = (
  writes: ReadonlyArray<Write>,
  outcomes: ReadonlyArray<Outcome>,
  comparison: Comparison
): ReadonlyArray<Outcome> => {
  const at = outcomes.findIndex(
    (outcome, index) => writes[index]!.idempotencyKey !== undefined && outcome._tag === "Committed"
  )
  return outcomes.map((outcome, index) => (index === at ? { ...outcome, comparison } : outcome))
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
  // An entry that did not expire, and still does not, is not in the index of expiries.
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
  // OR FAIL: SQLite need not copy pages to undo the statement, because the transaction is rolled back when it fails.
  record: db.prepare(
    `INSERT OR FAIL INTO changes (seq, op, namespace, key, version, actor, timestamp, tenant, value)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`
  ),
  keys: db
    .prepare<[namespace: string, low: string, high: string | Buffer, now: number, limit: number], string>(
      `SELECT key FROM entries WHERE namespace = ? AND key >= ? AND key < ? AND ${visible} ORDER BY key LIMIT ?`
    )
    .pluck(),
  due: db.prepare<[number, number], DueEntry>(
    "SELECT namespace, key, version FROM entries WHERE expires_at <= ? ORDER BY expires_at LIMIT ?"
  ),
  lastTrimmable: db.prepare<[number, number], { readonly lastTrimmable: number | null }>(
    "SELECT max(seq) AS lastTrimmable FROM (SELECT seq, timestamp FROM changes ORDER BY seq LIMIT ?) WHERE timestamp < ?"
  ),
  dropChanges: db.prepare("DELETE FROM changes WHERE seq <= ?"),
  dropTombstones: db.prepare("DELETE FROM tombstones WHERE seq <= ?")
})

/**
 * Maintains the number of entries of each namespace, and the numbers of namespaces and entries of each tenant. `flush`
 * writes all of them. Rows are updated first, and inserted if they are missing: one statement for both takes twice as
 * long.
 */
class NamespaceCounts {
  private readonly statements: ReturnType<typeof prepareCounts>
  private changed = new Map<string, number>()

  constructor(db: Database.Database) {
    this.statements = prepareCounts(db)
  }

  add(namespace: string, entries: number): void {
    this.changed.set(namespace, (this.changed.get(namespace) ?? 0) + entries)
  }

  flush(): void {
    if (this.changed.size === 0) return
    const { addNumbers, dropTenant, insertTenant } = this.statements
    const gains = new Map<string, { namespaces: number; entries: number }>()
    for (const [namespace, entries] of this.changed) {
      if (entries === 0) continue
      const tenant = tenantOf(namespace)
      const gain = gains.get(tenant) ?? { namespaces: 0, entries: 0 }
      gains.set(tenant, gain)
      gain.entries += entries
      gain.namespaces += this.addToNamespace(namespace, entries)
    }
    for (const [tenant, { entries, namespaces }] of gains) {
      if (addNumbers.run(namespaces, entries, tenant).changes === 0) insertTenant.run(tenant, namespaces, entries)
      else if (namespaces < 0) dropTenant.run(tenant)
    }
    this.clear()
  }

  clear(): void {
    if (this.changed.size > 0) this.changed = new Map()
  }

  /** Returns 1 for a new namespace, -1 for a removed one, and 0 for any other. */
  private addToNamespace(namespace: string, entries: number): number {
    const { addEntries, dropNamespace, insertNamespace } = this.statements
    if (addEntries.run(entries, namespace).changes === 0) {
      insertNamespace.run(namespace, entries)
      return 1
    }
    return entries < 0 && dropNamespace.run(namespace).changes > 0 ? -1 : 0
  }
}

const prepareCounts = (db: Database.Database) => ({
  addEntries: db.prepare("UPDATE namespaces SET entries = entries + ? WHERE namespace = ?"),
  insertNamespace: db.prepare("INSERT INTO namespaces (namespace, entries) VALUES (?, ?)"),
  dropNamespace: db.prepare("DELETE FROM namespaces WHERE namespace = ? AND entries = 0"),
  addNumbers: db.prepare("UPDATE tenants SET namespaces = namespaces + ?, entries = entries + ? WHERE tenant = ?"),
  insertTenant: db.prepare("INSERT INTO tenants (tenant, namespaces, entries) VALUES (?, ?, ?)"),
  dropTenant: db.prepare("DELETE FROM tenants WHERE tenant = ? AND namespaces = 0")
})

/** The writer of the key-value store. Its idempotency records have at most `idempotencyBytes`. */
export const writer = (idempotencyBytes: number): WriterPlugin<Write, Outcome> => ({
  format,
  tables: db => new Tables(db, idempotencyBytes)
})
