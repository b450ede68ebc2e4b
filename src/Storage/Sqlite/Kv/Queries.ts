import type Database from "better-sqlite3"
import * as Change from "../../../Kv/Change.ts"
import type { ChangePage, ChangeQuery, Due } from "../../../Kv/ChangeLog.ts"
import * as Entry from "../../../Kv/Entry.ts"
import {
  type Address,
  type EntriesRead,
  mostDue,
  type NamespaceCount,
  type NamespacePage,
  type NamespaceQuery,
  pageBytes,
  type Selection
} from "../../../Kv/Store.ts"
import { type EntryQuery, type EntryRow, toEntry } from "../../EntryRows.ts"
import * as KeyOrder from "../../KeyOrder.ts"
import { isUnreadable } from "../Database/DatabaseError.ts"
import type { ReadConnection } from "../Database/ReadConnection.ts"
import { type Printed, prepareList, printed, printedChange, printedEntry, printedKey, visible } from "./Printed.ts"

/** Records that a read of a namespace scans at most, as no index leads to those of a namespace. */
const scanned = 2000

/** Greater than every text: SQLite orders blobs after texts. */
const afterAllTexts = Buffer.alloc(0)

/** The lesser of an end and a key, where there is a key. */
const before = (end: string | Buffer, key: string): string | Buffer =>
  key === "" || (typeof end === "string" && KeyOrder.compare(key, end) > 0) ? end : key

export interface EntryPage {
  readonly entries: ReadonlyArray<Entry.EncodedEntry>
  readonly more: boolean
}

/** A part of the names of a selection. */
export interface NameCount {
  readonly count: number
  /** Where the next part starts, if there may be one. */
  readonly next: string | undefined
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

  /** `onPassed` is told of an unreadable page that a read did without. */
  constructor(
    private readonly connection: ReadConnection,
    private readonly onPassed: (error: unknown) => void = () => {}
  ) {
    this.statements = connection.prepare(prepare)
  }

  get(namespace: string, key: string, now: number): Entry.StoredEntry | undefined {
    const row = this.statements.get.get(namespace, key, now)
    return row === undefined ? undefined : toEntry(namespace, key, row)
  }

  /** The entries of some addresses, or nothing where their values have more bytes. */
  getMany(addresses: ReadonlyArray<Address>, maxBytes: number, now: number): EntriesRead["entries"] | undefined {
    let bytes = 0
    const entries: Array<Entry.EncodedEntry | undefined> = []
    for (const { key, namespace } of addresses) {
      const entry = this.get(namespace, key, now)
      bytes += entry === undefined ? 0 : Buffer.byteLength(entry.value)
      if (bytes > maxBytes) return undefined
      entries.push(entry && Entry.encode(entry))
    }
    return entries
  }

  /** The same without values, which are not read. */
  getManyKeys(addresses: ReadonlyArray<Address>, now: number): EntriesRead["entries"] {
    return addresses.map(({ key, namespace }) => {
      const text = this.statements.getKey.get(namespace, key, now)
      return text === undefined ? undefined : Entry.encodedWithoutValue(text)
    })
  }

  lastSeq(): number {
    return this.statements.last.get() ?? 0
  }

  due(): Due {
    const { firstExpiry, oldestTrimmable } = this.statements
    return { expiresAt: timeOf(firstExpiry), oldestAt: timeOf(oldestTrimmable) }
  }

  entries(query: EntryQuery): EntryPage {
    const { after, isDescending = false, keysOnly = false, limit, namespace, now, size = pageBytes } = query
    const range = KeyOrder.rangeOf(query)
    if (range === undefined) return { entries: [], more: false }
    const { low } = range
    const high = range.high ?? afterAllTexts
    const list = keysOnly ? this.statements.keys : this.statements.list
    const most = keysOnly ? Number.POSITIVE_INFINITY : size
    const { isCut, texts } = isDescending
      ? this.take(list.down, [namespace, low, before(high, after), now, limit + 1], most)
      : after !== "" && KeyOrder.compare(low, after) <= 0
        ? this.take(list.after, [namespace, after, high, now, limit + 1], most)
        : this.take(list.from, [namespace, low, high, now, limit + 1], most)
    const more = isCut || texts.length > limit
    if (texts.length > limit) texts.length = limit
    return { entries: texts.map(keysOnly ? Entry.encodedWithoutValue : Entry.encoded), more }
  }

  /**
   * How many names a selection has, of at most `limit` from `from` on, those of entries that have expired with them; of a
   * whole namespace all at once.
   */
  countNames(selection: Selection, limit: number, from = ""): NameCount {
    const range = KeyOrder.rangeOf(selection)
    if (range === undefined) return { count: 0, next: undefined }
    const { namespace } = selection
    if (range.low === "" && range.high === undefined) {
      return { count: this.statements.stored.get(namespace) ?? 0, next: undefined }
    }
    const { high = afterAllTexts, low } = range
    return countOf(this.statements.countNames.get(namespace, from === "" ? low : from, high, limit)!, limit)
  }

  /** How many of at most `limit` names from `from` on are those of entries that are visible at `now`. Reads the rows. */
  countVisible(selection: Selection, limit: number, now: number, from = ""): NameCount {
    const range = KeyOrder.rangeOf(selection)
    if (range === undefined) return { count: 0, next: undefined }
    const { high = afterAllTexts, low } = range
    return countOf(
      this.statements.countVisible.get(now, selection.namespace, from === "" ? low : from, high, limit)!,
      limit
    )
  }

  /**
   * How many entries of a selection have expired at `now` and are still stored, or nothing where more than `most` of all
   * entries have. No more of them are looked at.
   */
  countDue(selection: Selection, most: number, now: number): number | undefined {
    const range = KeyOrder.rangeOf(selection)
    if (range === undefined) return 0
    const { high = afterAllTexts, low } = range
    const [looked, found] = this.statements.countDue.get(selection.namespace, low, high, now, most + 1)!
    return looked > most ? undefined : found
  }

  /** `epoch` is that of the log that the connection reads. */
  namespaces(query: NamespaceQuery, now: number, epoch: string): NamespacePage {
    const { after, limit } = query
    const lastSeq = this.lastSeq()
    const range = KeyOrder.rangeOfNamespaces(query)
    if (range === undefined) return { namespaces: [], lastSeq, epoch, more: false }
    const { from, high = afterAllTexts, low, only } = range
    const rows = this.statements.namespaces.all(now, mostDue, low, high, after, only, from, limit + 1)
    const more = rows.length > limit
    if (more) rows.length = limit
    return { namespaces: rows, lastSeq, epoch, more }
  }

  /** `epoch` is that of the log that the connection reads. */
  changes(query: ChangeQuery, epoch: string): ChangePage | TrimmedBefore {
    return this.inSnapshot(() => {
      const { after, limit, namespace, tenant } = query
      const bounds = this.bounds(query)
      if ("_tag" in bounds) return bounds
      const { last } = bounds
      if (after >= last) return { changes: [], lastSeq: last, epoch, isComplete: false }
      const end = namespace === undefined ? last : Math.min(after + scanned, last)
      const { isCut, texts } =
        namespace !== undefined
          ? this.takePart(query, namespace, end)
          : tenant === ""
            ? this.take(this.statements.changes, [after, limit], pageBytes)
            : this.take(this.statements.tenantChanges, [tenant, after, limit], pageBytes)
      const changes = texts.map(Change.encoded)
      const isFull = isCut || changes.length === limit
      return { changes, lastSeq: isFull ? changes.at(-1)!.seq : end, epoch, isComplete: isFull || end < last }
    })
  }

  /** The records of a part of a namespace, up to one with this `seq`. */
  private takePart({ after, limit, prefix = "", tenant }: ChangeQuery, namespace: string, upTo: number) {
    const own = Entry.tenantOf(namespace)
    if (!prefix.isWellFormed() || (tenant !== "" && tenant !== own)) return { texts: [], isCut: false }
    const end = KeyOrder.endOfPrefix(prefix) ?? afterAllTexts
    const part: PartParameters = [after, upTo, namespace, prefix, end, limit]
    return own === ""
      ? this.take(this.statements.partChanges, part, pageBytes)
      : this.take(this.statements.tenantPartChanges, [own, ...part], pageBytes)
  }

  /**
   * The rows of a statement, up to the one with which their values come to so many bytes. They end before what cannot
   * be read, which is then the first row of the next read.
   */
  private take<Parameters extends Array<unknown>>(
    { print, size }: Printed<Parameters>,
    parameters: Parameters,
    maxBytes: number
  ): { readonly texts: Array<string>; readonly isCut: boolean } {
    try {
      if (maxBytes === Number.POSITIVE_INFINITY || (size.get(...parameters) ?? 0) < maxBytes)
        return { texts: print.all(...parameters), isCut: false }
    } catch (error) {
      if (!isUnreadable(error)) throw error
    }
    const texts: Array<string> = []
    let total = 0
    try {
      for (const text of print.iterate(...parameters)) {
        if (total >= maxBytes) return { texts, isCut: true }
        texts.push(text)
        total += text.length
      }
    } catch (error) {
      if (texts.length === 0 || !isUnreadable(error)) throw error
      return { texts, isCut: true }
    }
    return { texts, isCut: false }
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
      this.onPassed(error)
      const last = this.lastSeq()
      return { first: after < last ? this.statements.next.get(after + 1)! : last, last }
    }
  }

  /** Makes several reads from one snapshot. */
  inSnapshot<A>(body: () => A): A {
    return this.connection.inSnapshot(body)
  }
}

/** Names hold no U+0000, so that the next part starts with the least text after the last key. */
const countOf = ([count, read, last]: [number, number, string | null], limit: number): NameCount => ({
  count,
  next: read < limit ? undefined : `${last}\u0000`
})

/** A time that cannot be read has come: the work itself then tells what is wrong. */
const timeOf = (statement: Database.Statement<[], number | null>): number | null => {
  try {
    return statement.get() ?? null
  } catch (error) {
    if (!isUnreadable(error)) throw error
    return 0
  }
}

type PartParameters = [
  after: number,
  upTo: number,
  namespace: string,
  start: string,
  end: string | Buffer,
  limit: number
]

const inPart = "namespace = ? AND key >= ? AND key < ?"

type NamespaceParameters = [
  now: number,
  mostDue: number,
  low: string,
  high: string | Buffer,
  after: string,
  only: string,
  from: string,
  limit: number
]

type RangeParameters = [namespace: string, start: string, end: string | Buffer]

const prepare = (db: Database.Database) => ({
  ends: db.prepare<[], { readonly first: number | null; readonly last: number | null }>(
    "SELECT (SELECT min(seq) FROM changes) AS first, (SELECT max(seq) FROM changes) AS last"
  ),
  // A statement of its own: the end of the log can be read even if its start cannot.
  last: db.prepare<[], number | null>("SELECT max(seq) FROM changes").pluck(),
  // At or after a number rather than after the one before it, whose record may be the one that cannot be read.
  next: db.prepare<[number], number | null>("SELECT min(seq) FROM changes WHERE seq >= ?").pluck(),
  firstExpiry: db
    .prepare<[], number | null>("SELECT min(expires_at) FROM entries WHERE expires_at IS NOT NULL")
    .pluck(),
  oldestTrimmable: db
    .prepare<[], number | null>(
      "SELECT timestamp FROM changes WHERE seq < (SELECT max(seq) FROM changes) ORDER BY seq LIMIT 1"
    )
    .pluck(),
  // Only what the caller does not know, as an array: to build an object for each row takes a sixth of the time.
  get: db
    .prepare<[string, string, number], EntryRow>(
      `SELECT version, updated_by, updated_at, expires_at, value FROM entries WHERE namespace = ? AND key = ? AND ${visible}`
    )
    .raw(),
  getKey: db
    .prepare<[string, string, number], string>(
      `SELECT ${printedKey} FROM entries WHERE namespace = ? AND key = ? AND ${visible}`
    )
    .pluck(),
  list: prepareList(db, printedEntry),
  keys: prepareList(db, printedKey),
  // By the index of names alone, which is far smaller than the table.
  countNames: db
    .prepare<[...RangeParameters, limit: number], [count: number, read: number, last: string | null]>(
      `SELECT count(*), count(*), max(key) FROM
         (SELECT key FROM entries WHERE namespace = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?)`
    )
    .raw(),
  countVisible: db
    .prepare<[now: number, ...RangeParameters, limit: number], [count: number, read: number, last: string | null]>(
      `SELECT count(*) FILTER (WHERE ${visible}), count(*), max(key) FROM
         (SELECT key, expires_at FROM entries WHERE namespace = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?)`
    )
    .raw(),
  stored: db.prepare<[string], number>("SELECT entries FROM namespaces WHERE namespace = ?").pluck(),
  countDue: db
    .prepare<[...RangeParameters, now: number, limit: number], [looked: number, found: number]>(
      `SELECT count(*), count(*) FILTER (WHERE namespace = ? AND key >= ? AND key < ?) FROM
         (SELECT namespace, key FROM entries WHERE expires_at <= ? LIMIT ?)`
    )
    .raw(),
  namespaces: db.prepare<NamespaceParameters, NamespaceCount>(
    `WITH due AS MATERIALIZED (
       SELECT namespace, count(*) AS entries FROM (SELECT namespace FROM entries WHERE expires_at <= ? LIMIT ?)
       GROUP BY namespace
     )
     SELECT n.namespace, n.entries - coalesce(due.entries, 0) AS count FROM namespaces n LEFT JOIN due USING (namespace)
     WHERE n.namespace >= ? AND n.namespace < ? AND n.namespace > ? AND (n.namespace = ? OR n.namespace >= ?)
       AND n.entries > coalesce(due.entries, 0)
     ORDER BY n.namespace LIMIT ?`
  ),
  changes: printed<[number, number]>(db, printedChange, "FROM changes WHERE seq >= ? + 1 ORDER BY seq LIMIT ?"),
  // The empty tenant is ruled out in words, so that the index that leaves it out can be used.
  tenantChanges: printed<[string, number, number]>(
    db,
    printedChange,
    "FROM changes WHERE tenant = ? AND tenant <> '' AND seq > ? ORDER BY seq LIMIT ?"
  ),
  partChanges: printed<PartParameters>(
    db,
    printedChange,
    `FROM changes WHERE seq >= ? + 1 AND seq <= ? AND ${inPart} ORDER BY seq LIMIT ?`
  ),
  tenantPartChanges: printed<[string, ...PartParameters]>(
    db,
    printedChange,
    `FROM changes WHERE tenant = ? AND tenant <> '' AND seq > ? AND seq <= ? AND ${inPart} ORDER BY seq LIMIT ?`
  )
})
