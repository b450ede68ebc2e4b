/** The reads of the key-value store and of its change log. */
import type Database from "better-sqlite3"
import { compare } from "../../../Client/KeyOrder.ts"
import * as Change from "../../../Kv/Change.ts"
import type { ChangePage, ChangeQuery, Due } from "../../../Kv/ChangeLog.ts"
import * as Entry from "../../../Kv/Entry.ts"
import {
  type Address,
  type EntriesRead,
  maxDue,
  type NamespaceCount,
  type NamespacePage,
  type NamespaceQuery,
  pageBytes,
  type Selection,
  type TenantCount,
  type TenantPage,
  type TenantQuery
} from "../../../Kv/Store.ts"
import * as KeyOrder from "../../KeyOrder.ts"
import { describe, isUnreadable } from "../Database/DatabaseError.ts"
import type { ReadConnection } from "../Database/ReadConnection.ts"
import { LogSizes } from "./LogSizes.ts"
import {
  afterAllTexts,
  type Extent,
  prepareAll,
  prepareList,
  prepareTenant,
  printed,
  printedChange,
  printedEntry,
  printedKey,
  take,
  visible
} from "./Printed.ts"
import { tenantOfColumn } from "./Schema.ts"

/** The maximum number of records that a read of a namespace scans, because no index finds those of a namespace. */
const scanned = 2000

/** A page, or that records after the position of the read were removed, up to `trimmedSeq`. */
export type LogRead = (ChangePage | { readonly _tag: "TrimmedBefore"; readonly trimmedSeq: number }) & {
  /** Why the start of the log cannot be read, if it cannot. */
  readonly damage?: string
}

interface Ends {
  readonly first: number | null
  readonly last: number | null
  readonly damage?: string
}

/** The lower one of an end and a key, if there is a key. */
const before = (end: string | Buffer, key: string): string | Buffer =>
  key === "" || (typeof end === "string" && compare(key, end) > 0) ? end : key

export interface EntryPage {
  readonly entries: ReadonlyArray<Entry.EncodedEntry>
  readonly more: boolean
}

export interface NameCount {
  readonly count: number
  /** Where the next part starts, if there may be one. */
  readonly next: string | undefined
}

/** Each read is made from one snapshot: its own, or that of the connection. Statements throw `SqliteError`. */
export class Queries {
  private readonly statements: ReturnType<typeof prepare>
  private readonly sizes = new LogSizes((after, upTo) => this.sizeOf(after, upTo))

  constructor(private readonly connection: ReadConnection) {
    this.statements = connection.prepare(prepare)
  }

  get(namespace: string, key: string, now: number): Entry.StoredEntry | undefined {
    const row = this.statements.get.get(namespace, key, now)
    return row === undefined ? undefined : Entry.toEntry(namespace, key, row)
  }

  /** The entries of some addresses; `undefined` if their values have more than `maxBytes`. */
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

  /** `epoch` is that of the log that the connection reads. */
  changes(query: ChangeQuery, epoch: string): LogRead {
    return this.inSnapshot(() => this.readLog(query, epoch))
  }

  private readLog(query: ChangeQuery, epoch: string): LogRead {
    const { damage, first, last } = this.endsOfLog(query.after)
    // Records are dense, and the newest is never removed: records that are missing at the start were trimmed.
    const read: LogRead =
      first !== null && query.after < first - 1
        ? { _tag: "TrimmedBefore", trimmedSeq: first - 1 }
        : this.changePage(query, last ?? 0, epoch)
    return damage === undefined ? read : { ...read, damage }
  }

  private changePage(query: ChangeQuery, last: number, epoch: string): ChangePage {
    const { after, limit, namespace, tenant } = query
    if (after >= last) return { changes: [], lastSeq: last, epoch, isComplete: false }
    const joined = namespace === undefined ? this.joinedPage(query, last, epoch) : undefined
    if (joined !== undefined) return joined
    const end = namespace === undefined ? last : Math.min(after + scanned, last)
    const { isCut, texts } =
      namespace !== undefined
        ? this.takeChanges(query, namespace, end)
        : tenant === ""
          ? take(this.statements.changes, [after, limit], pageBytes)
          : take(this.statements.tenantChanges, [tenant, after, limit], pageBytes)
    const changes = texts.map(Change.encoded)
    const isFull = isCut || changes.length === limit
    return { changes, lastSeq: isFull ? changes.at(-1)!.seq : end, epoch, isComplete: isFull || end < last }
  }

  /** A page whose records are one text. `undefined` if they are too large for a page, or if one cannot be read. */
  private joinedPage({ after, limit, tenant }: ChangeQuery, last: number, epoch: string): ChangePage | undefined {
    const { all, ofTenant } = this.statements.joined
    try {
      const [count, upTo, size] =
        tenant === ""
          ? this.extentOf(after, Math.min(after + limit, last), last)
          : ofTenant.size.get(tenant, after, limit)!
      if (size >= pageBytes) return undefined
      const text = tenant === "" ? all.text.get(after, upTo) : ofTenant.text.get(tenant, after, upTo)
      const isFull = count === limit
      const changes = Change.Records.ofText(text ?? "", count)
      return { changes, lastSeq: isFull ? upTo : last, epoch, isComplete: isFull }
    } catch (error) {
      if (!isUnreadable(error)) throw error
      return undefined
    }
  }

  /** The extent of all records of a range: they are dense. The size may be greater if it is within the limit. */
  private extentOf(after: number, upTo: number, last: number): Extent {
    const bound = this.sizes.bound(after, upTo, last)
    return [upTo - after, upTo, bound < pageBytes ? bound : this.sizeOf(after, upTo)]
  }

  private sizeOf(after: number, upTo: number): number {
    return this.statements.joined.all.size.get(after, upTo)!
  }

  /** The records of a part of a namespace, up to the one with this `seq`. */
  private takeChanges({ after, limit, prefix = "", tenant }: ChangeQuery, namespace: string, upTo: number) {
    const own = Entry.tenantOf(namespace)
    if (!prefix.isWellFormed() || (tenant !== "" && tenant !== own)) return { texts: [], isCut: false }
    const end = KeyOrder.endOfPrefix(prefix) ?? afterAllTexts
    const part: PartParameters = [after, upTo, namespace, prefix, end, limit]
    return own === ""
      ? take(this.statements.partChanges, part, pageBytes)
      : take(this.statements.tenantPartChanges, [own, ...part], pageBytes)
  }

  /** If the first `seq` cannot be read, the first one after `after`. */
  private endsOfLog(after: number): Ends {
    try {
      return this.statements.ends.get()!
    } catch (error) {
      if (!isUnreadable(error)) throw error
      const last = this.lastSeq()
      return { first: after < last ? this.statements.next.get(after + 1)! : last, last, damage: describe(error) }
    }
  }

  due(): Due {
    const { firstExpiry, oldestTrimmable } = this.statements
    return { expiresAt: timeOf(firstExpiry), oldestAt: timeOf(oldestTrimmable) }
  }

  entries(query: KeyOrder.EntryQuery): EntryPage {
    const { after, isDescending = false, keysOnly = false, limit, namespace, now, size = pageBytes } = query
    const range = KeyOrder.rangeOf(query)
    if (range === undefined) return { entries: [], more: false }
    const { low } = range
    const high = range.high ?? afterAllTexts
    const list = keysOnly ? this.statements.keys : this.statements.list
    const most = keysOnly ? Number.POSITIVE_INFINITY : size
    const { isCut, texts } = isDescending
      ? take(list.down, [namespace, low, before(high, after), now, limit + 1], most)
      : after !== "" && compare(low, after) <= 0
        ? take(list.after, [namespace, after, high, now, limit + 1], most)
        : take(list.from, [namespace, low, high, now, limit + 1], most)
    const more = isCut || texts.length > limit
    if (texts.length > limit) texts.length = limit
    return { entries: texts.map(keysOnly ? Entry.encodedWithoutValue : Entry.encoded), more }
  }

  /** The names of a selection, also expired ones, of at most `limit` from `from` on; all of a whole namespace. */
  countNames(selection: Selection, limit: number, from = ""): NameCount {
    const range = rangeOf(selection, from)
    if (range === undefined) return { count: 0, next: undefined }
    const [namespace, low, high] = range
    return low === "" && high === afterAllTexts
      ? { count: this.statements.stored.get(namespace) ?? 0, next: undefined }
      : countOf(this.statements.countNames.get(...range, limit)!, limit)
  }

  /** The number of visible entries at `now` among at most `limit` names from `from` on. Reads the rows. */
  countVisible(selection: Selection, limit: number, now: number, from = ""): NameCount {
    const range = rangeOf(selection, from)
    return range === undefined
      ? { count: 0, next: undefined }
      : countOf(this.statements.countVisible.get(now, ...range, limit)!, limit)
  }

  /** How many stored entries have expired at `now`; `undefined` if more than `most` have in all namespaces. */
  countDue(selection: Selection, most: number, now: number): number | undefined {
    const range = rangeOf(selection)
    if (range === undefined) return 0
    const [looked, found] = this.statements.countDue.get(...range, now, most + 1)!
    return looked > most ? undefined : found
  }

  /** `epoch` is that of the log that the connection reads. */
  namespaces(query: NamespaceQuery, now: number, epoch: string): NamespacePage {
    const { after, limit } = query
    const namespaces: Array<NamespaceCount> = []
    for (const { high = afterAllTexts, low } of KeyOrder.rangesOfNamespaces(query)) {
      const left = limit + 1 - namespaces.length
      if (left > 0) namespaces.push(...this.statements.namespaces.all(now, maxDue, low, high, after, left))
    }
    const more = namespaces.length > limit
    if (more) namespaces.length = limit
    return { namespaces, lastSeq: this.lastSeq(), epoch, more }
  }

  /** `epoch` is that of the log that the connection reads. */
  tenants(query: TenantQuery, now: number, epoch: string): TenantPage {
    const { limit } = query
    const range = KeyOrder.rangeOfTenants(query)
    const { high = afterAllTexts, low } = range ?? { low: "", high: "" }
    const tenants = this.statements.tenants.all(now, maxDue, low, high, limit + 1)
    const more = tenants.length > limit
    if (more) tenants.length = limit
    return { tenants, lastSeq: this.lastSeq(), epoch, more }
  }

  inSnapshot<A>(body: () => A): A {
    return this.connection.inSnapshot(body)
  }
}

/** Names never contain U+0000, so that the next part starts with the lowest text after the last key. */
const countOf = ([count, read, last]: [number, number, string | null], limit: number): NameCount => ({
  count,
  next: read < limit ? undefined : `${last}\u0000`
})

/** An unreadable time counts as passed: the work itself then reports the failure. */
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
  maxDue: number,
  low: string,
  high: string | Buffer,
  after: string,
  limit: number
]

type TenantParameters = [now: number, maxDue: number, low: string, high: string | Buffer, limit: number]

type RangeParameters = [namespace: string, start: string, end: string | Buffer]

/** The range of a selection, or its part from `from` on; `undefined` if it is empty. */
const rangeOf = (selection: Selection, from = ""): RangeParameters | undefined => {
  const range = KeyOrder.rangeOf(selection)
  return range && [selection.namespace, from === "" ? range.low : from, range.high ?? afterAllTexts]
}

/** The number of entries of each namespace that have expired and are still stored. */
const due = `due AS MATERIALIZED (
       SELECT namespace, count(*) AS entries FROM (SELECT namespace FROM entries WHERE expires_at <= ? LIMIT ?)
       GROUP BY namespace
     )`

const prepare = (db: Database.Database) => ({
  ends: db.prepare<[], Ends>("SELECT (SELECT min(seq) FROM changes) AS first, (SELECT max(seq) FROM changes) AS last"),
  // A separate statement: the end of the log can be read even if its start cannot.
  last: db.prepare<[], number | null>("SELECT max(seq) FROM changes").pluck(),
  // At or after a number: the record before it may be the unreadable one.
  next: db.prepare<[number], number | null>("SELECT min(seq) FROM changes WHERE seq >= ?").pluck(),
  changes: printed<[number, number]>(db, printedChange, "FROM changes WHERE seq >= ? + 1 ORDER BY seq LIMIT ?"),
  joined: { all: prepareAll(db), ofTenant: prepareTenant(db) },
  // The condition on the empty tenant makes the partial index usable.
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
  ),
  firstExpiry: db
    .prepare<[], number | null>("SELECT min(expires_at) FROM entries WHERE expires_at IS NOT NULL")
    .pluck(),
  oldestTrimmable: db
    .prepare<[], number | null>(
      "SELECT timestamp FROM changes WHERE seq < (SELECT max(seq) FROM changes) ORDER BY seq LIMIT 1"
    )
    .pluck(),
  // Only the unknown columns, as an array: creating an object for each row takes a sixth of the time.
  get: db
    .prepare<[string, string, number], Entry.EntryRow>(
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
    `WITH ${due}
     SELECT n.namespace, n.entries - coalesce(due.entries, 0) AS count FROM namespaces n LEFT JOIN due USING (namespace)
     WHERE n.namespace >= ? AND n.namespace < ? AND n.namespace > ? AND n.entries > coalesce(due.entries, 0)
     ORDER BY n.namespace LIMIT ?`
  ),
  tenants: db.prepare<TenantParameters, TenantCount>(
    `WITH ${due}, gone AS MATERIALIZED (
       SELECT ${tenantOfColumn("namespace")} AS tenant, sum(due.entries) AS entries,
         count(*) FILTER (WHERE due.entries = n.entries) AS namespaces
       FROM due JOIN namespaces n USING (namespace) GROUP BY 1
     )
     SELECT t.tenant, t.namespaces - coalesce(gone.namespaces, 0) AS namespaces, t.entries - coalesce(gone.entries, 0) AS entries
     FROM tenants t LEFT JOIN gone USING (tenant)
     WHERE t.tenant >= ? AND t.tenant < ? AND t.namespaces > coalesce(gone.namespaces, 0)
     ORDER BY t.tenant LIMIT ?`
  )
})
