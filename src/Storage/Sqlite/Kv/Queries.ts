import type Database from "better-sqlite3"
import type { JsonText } from "../../../Json/JsonText.ts"
import { toJson as changeToJson, type StoredChange } from "../../../Kv/Change.ts"
import type { ChangePage, ChangeQuery, PrintedPage } from "../../../Kv/ChangeLog.ts"
import { toJson as entryToJson, type StoredEntry } from "../../../Kv/Entry.ts"
import type { Selection } from "../../../Kv/Store.ts"
import { isUnreadable } from "../Database/DatabaseError.ts"
import type { ReadConnection } from "../Database/ReadConnection.ts"

/** A page ends after the value with which it comes to this many characters; in bytes where SQLite prints it. */
const pageSize = 4 * 1024 * 1024

/** Greater than every text: SQLite orders blobs after texts. */
const afterAllTexts = Buffer.alloc(0)

/** Where the keys that start with a prefix end: the least text after all of them, or the end of all texts. */
export const endOfPrefix = (prefix: string): string | Buffer => {
  const points = [...prefix].map(character => character.codePointAt(0)!)
  for (let last = points.pop(); last !== undefined; last = points.pop()) {
    if (last === 0x10ffff) continue
    // Surrogates are no characters of UTF-8: what follows U+D7FF is U+E000.
    return String.fromCodePoint(...points, last === 0xd7ff ? 0xe000 : last + 1)
  }
  return afterAllTexts
}

/** Whether one text comes after another by the bytes of their UTF-8, as keys are ordered. */
const isAfter = (a: string, b: string): boolean => Buffer.compare(Buffer.from(a), Buffer.from(b)) > 0

/** The lesser of an end and a key, where there is a key. */
const before = (end: string | Buffer, key: string): string | Buffer =>
  key === "" || (typeof end === "string" && isAfter(key, end)) ? end : key

/** Entries of a selection that are visible at `now` (epoch milliseconds) and come after a key. */
export interface EntryQuery extends Selection {
  readonly after: string
  readonly limit: number
  /** From the last key to the first; the page comes before `after` then. */
  readonly isDescending?: boolean
  readonly now: number
  /** The page ends after the value with which it comes to this many characters. */
  readonly size?: number
}

export interface EntryRows {
  readonly entries: ReadonlyArray<StoredEntry>
  readonly more: boolean
}

export interface PrintedRows {
  readonly entries: ReadonlyArray<string>
  readonly more: boolean
  /** The key of the last entry; `""` where there is none. */
  readonly lastKey: string
}

export interface TrimmedBefore {
  readonly _tag: "TrimmedBefore"
  readonly trimmedSeq: number
}

/**
 * The reads of the key-value store. Each is made from one snapshot, its own or one that the connection holds. Statements
 * throw `SqliteError`; nothing is caught here.
 */
export class Queries {
  private readonly statements: ReturnType<typeof prepare>

  constructor(private readonly connection: ReadConnection) {
    this.statements = connection.prepare(prepare)
  }

  get(namespace: string, key: string, now: number): StoredEntry | undefined {
    const row = this.statements.get.get(namespace, key, now)
    if (row === undefined) return undefined
    return { namespace, key, value: row[4], version: row[0], updatedBy: row[1], updatedAt: row[2], expiresAt: row[3] }
  }

  lastSeq(): number {
    return this.statements.last.get() ?? 0
  }

  entries({ namespace, prefix, after, limit, isDescending = false, now, size = pageSize }: EntryQuery): EntryRows {
    // Half a character is the start of no key's bytes, though it may be the start of its UTF-16.
    if (!prefix.isWellFormed()) return { entries: [], more: false }
    const end = endOfPrefix(prefix)
    const rows = isDescending
      ? this.statements.listDown.iterate(namespace, prefix, before(end, after), now, limit + 1)
      : after !== "" && !isAfter(prefix, after)
        ? this.statements.listAfter.iterate(namespace, after, end, now, limit + 1)
        : this.statements.listFrom.iterate(namespace, prefix, end, now, limit + 1)
    const entries: Array<StoredEntry> = []
    let total = 0
    try {
      for (const entry of rows) {
        if (entries.length === limit || total >= size) return { entries, more: true }
        entries.push(entry)
        total += entry.value.length
      }
    } catch (error) {
      // The page ends before the row that cannot be read, and the next one begins with it.
      if (entries.length === 0 || !isUnreadable(error)) throw error
      return { entries, more: true }
    }
    return { entries, more: false }
  }

  /** As `entries`, but SQLite formats the JSON text, which takes a third of the time. */
  printedEntries(query: Omit<EntryQuery, "size" | "isDescending">): PrintedRows {
    return this.inSnapshot(() => {
      const { namespace, prefix, after, limit, now } = query
      if (!prefix.isWellFormed()) return { entries: [], more: false, lastKey: "" }
      const end = endOfPrefix(prefix)
      const isFurther = after !== "" && !isAfter(prefix, after)
      const { size, print, keyAt } = isFurther ? this.statements.printAfter : this.statements.printFrom
      const start = isFurther ? after : prefix
      try {
        if ((size.get(namespace, start, end, now, limit + 1) ?? 0) < pageSize) {
          const entries = print.all(namespace, start, end, now, limit + 1)
          const more = entries.length > limit
          if (more) entries.length = limit
          const lastKey = entries.length === 0 ? "" : keyAt.get(namespace, start, end, now, entries.length - 1)!
          return { entries, more, lastKey }
        }
      } catch (error) {
        if (!isUnreadable(error)) throw error
      }
      const { entries, more } = this.entries(query)
      return { entries: entries.map(entryToJson), more, lastKey: entries.at(-1)?.key ?? "" }
    })
  }

  changes(query: ChangeQuery): ChangePage | TrimmedBefore {
    return this.inSnapshot(() => {
      const { after, limit, tenant } = query
      const bounds = this.bounds(query)
      if ("_tag" in bounds) return bounds
      const { last } = bounds
      if (after >= last) return { changes: [], lastSeq: last }
      const rows =
        tenant === ""
          ? this.statements.changes.iterate(after, limit)
          : this.statements.tenantChanges.iterate(tenant, after, limit)
      const changes: Array<StoredChange> = []
      let total = 0
      try {
        for (const change of rows) {
          changes.push(change)
          total += change.value?.length ?? 0
          if (total >= pageSize) return { changes, lastSeq: change.seq }
        }
      } catch (error) {
        // The page ends before the record that cannot be read; the next read fails on it.
        if (changes.length === 0 || !isUnreadable(error)) throw error
        return { changes, lastSeq: changes.at(-1)!.seq }
      }
      return { changes, lastSeq: changes.length === limit ? changes[limit - 1]!.seq : last }
    })
  }

  /** As `changes`, but SQLite formats the JSON text, which takes a quarter of the time. */
  printedChanges(query: ChangeQuery): PrintedPage | TrimmedBefore {
    return this.inSnapshot(() => {
      const { after, limit, tenant } = query
      const bounds = this.bounds(query)
      if ("_tag" in bounds) return bounds
      const { last } = bounds
      if (after >= last) return { changes: [], lastSeq: last, complete: false }
      const { changesSize, printChanges, tenantChangesSize, printTenantChanges, tenantSeqAt } = this.statements
      try {
        const size = tenant === "" ? changesSize.get(after, limit) : tenantChangesSize.get(tenant, after, limit)
        if ((size ?? 0) < pageSize) {
          if (tenant === "") {
            const changes = printChanges.all(after, limit)
            return { changes, lastSeq: after + changes.length, complete: changes.length === limit }
          }
          const changes = printTenantChanges.all(tenant, after, limit)
          const complete = changes.length === limit
          return { changes, lastSeq: complete ? tenantSeqAt.get(tenant, after, limit - 1)! : last, complete }
        }
      } catch (error) {
        if (!isUnreadable(error)) throw error
      }
      const page = this.changes(query)
      if ("_tag" in page) return page
      return { changes: page.changes.map(changeToJson), lastSeq: page.lastSeq, complete: page.lastSeq < last }
    })
  }

  /** The log's end, unless records after `after` were trimmed. */
  private bounds({ after }: ChangeQuery): { readonly last: number } | TrimmedBefore {
    const { first, last } = this.ends(after)
    if (first === null || last === null) return { last: 0 }
    // Records are dense, and the newest is never removed, so those that are missing at the start were trimmed.
    return after < first - 1 ? { _tag: "TrimmedBefore", trimmedSeq: first - 1 } : { last }
  }

  /** The first and the last `seq` of the log; where the first cannot be read, the first one after `after`. */
  private ends(after: number): { readonly first: number | null; readonly last: number | null } {
    try {
      return this.statements.ends.get()!
    } catch (error) {
      if (!isUnreadable(error)) throw error
      const last = this.lastSeq()
      return { first: after < last ? this.statements.next.get(after + 1)! : last, last }
    }
  }

  /** Makes several reads from one snapshot. */
  inSnapshot<A>(body: () => A): A {
    return this.connection.inSnapshot(body)
  }
}

const entryColumns =
  "namespace, key, version, updated_by AS updatedBy, updated_at AS updatedAt, expires_at AS expiresAt, value"
const changeColumns = "seq, op, namespace, key, version, actor, timestamp, value"
const visible = "(expires_at IS NULL OR expires_at > ?)"

/** What `toJson` of an entry prints. Names hold no U+0000, at which SQLite's texts would end. */
const printedEntry = `format(
  '{"namespace":%s,"key":%s,"value":%s,"version":%d,"updatedBy":%s,"updatedAt":%d,"expiresAt":%s}',
  json_quote(namespace), json_quote(key), value, version, json_quote(updated_by), updated_at,
  coalesce(expires_at, 'null')
)`

/** What `toJson` of a change prints. */
const printedChange = `format(
  '{"seq":%d,"op":"%s","namespace":%s,"key":%s,"value":%s,"version":%d,"actor":%s,"timestamp":%d,"tenantId":%s}',
  seq, op, json_quote(namespace), json_quote(key), coalesce(value, 'null'), version, json_quote(actor), timestamp,
  json_quote(tenant)
)`

type EntryRow = [version: number, updatedBy: string, updatedAt: number, expiresAt: number | null, value: JsonText]

type ListParameters = [namespace: string, start: string, end: string | Buffer, now: number, limit: number]

const prepareList = (db: Database.Database, comparison: ">" | ">=") => {
  const selected = `FROM entries WHERE namespace = ? AND key ${comparison} ? AND key < ? AND ${visible} ORDER BY key LIMIT`
  return {
    size: db
      .prepare<ListParameters, number | null>(
        `SELECT sum(size) FROM (SELECT octet_length(value) AS size ${selected} ?)`
      )
      .pluck(),
    print: db.prepare<ListParameters, string>(`SELECT ${printedEntry} ${selected} ?`).pluck(),
    keyAt: db.prepare<ListParameters, string>(`SELECT key ${selected} 1 OFFSET ?`).pluck()
  }
}

const prepare = (db: Database.Database) => ({
  ends: db.prepare<[], { readonly first: number | null; readonly last: number | null }>(
    "SELECT (SELECT min(seq) FROM changes) AS first, (SELECT max(seq) FROM changes) AS last"
  ),
  // A statement of its own: the end of the log can be read even if its start cannot.
  last: db.prepare<[], number | null>("SELECT max(seq) FROM changes").pluck(),
  // At or after a number rather than after the one before it, whose record may be the one that cannot be read.
  next: db.prepare<[number], number | null>("SELECT min(seq) FROM changes WHERE seq >= ?").pluck(),
  // Only what the caller does not know, as an array: to build an object for each row takes a sixth of the time.
  get: db
    .prepare<[string, string, number], EntryRow>(
      `SELECT version, updated_by, updated_at, expires_at, value FROM entries WHERE namespace = ? AND key = ? AND ${visible}`
    )
    .raw(),
  listFrom: db.prepare<ListParameters, StoredEntry>(
    `SELECT ${entryColumns} FROM entries WHERE namespace = ? AND key >= ? AND key < ? AND ${visible} ORDER BY key LIMIT ?`
  ),
  listAfter: db.prepare<ListParameters, StoredEntry>(
    `SELECT ${entryColumns} FROM entries WHERE namespace = ? AND key > ? AND key < ? AND ${visible} ORDER BY key LIMIT ?`
  ),
  listDown: db.prepare<ListParameters, StoredEntry>(
    `SELECT ${entryColumns} FROM entries WHERE namespace = ? AND key >= ? AND key < ? AND ${visible} ORDER BY key DESC LIMIT ?`
  ),
  printFrom: prepareList(db, ">="),
  printAfter: prepareList(db, ">"),
  changes: db.prepare<[number, number], StoredChange>(
    `SELECT ${changeColumns} FROM changes WHERE seq >= ? + 1 ORDER BY seq LIMIT ?`
  ),
  changesSize: db
    .prepare<[number, number], number | null>(
      "SELECT sum(size) FROM (SELECT octet_length(value) AS size FROM changes WHERE seq >= ? + 1 ORDER BY seq LIMIT ?)"
    )
    .pluck(),
  printChanges: db
    .prepare<[number, number], string>(`SELECT ${printedChange} FROM changes WHERE seq >= ? + 1 ORDER BY seq LIMIT ?`)
    .pluck(),
  // The empty tenant is excluded explicitly, so that SQLite can use the partial index.
  tenantChanges: db.prepare<[string, number, number], StoredChange>(
    `SELECT ${changeColumns} FROM changes WHERE tenant = ? AND tenant <> '' AND seq > ? ORDER BY seq LIMIT ?`
  ),
  tenantChangesSize: db
    .prepare<[string, number, number], number | null>(
      "SELECT sum(size) FROM " +
        "(SELECT octet_length(value) AS size FROM changes WHERE tenant = ? AND tenant <> '' AND seq > ? ORDER BY seq LIMIT ?)"
    )
    .pluck(),
  printTenantChanges: db
    .prepare<[string, number, number], string>(
      `SELECT ${printedChange} FROM changes WHERE tenant = ? AND tenant <> '' AND seq > ? ORDER BY seq LIMIT ?`
    )
    .pluck(),
  tenantSeqAt: db
    .prepare<[string, number, number], number>(
      "SELECT seq FROM changes WHERE tenant = ? AND tenant <> '' AND seq > ? ORDER BY seq LIMIT 1 OFFSET ?"
    )
    .pluck()
})
