/**
 * The reads of the change log.
 */
import type Database from "better-sqlite3"
import * as Change from "../../../Kv/Change.ts"
import type { ChangePage, ChangeQuery } from "../../../Kv/ChangeLog.ts"
import * as Entry from "../../../Kv/Entry.ts"
import { pageBytes } from "../../../Kv/Store.ts"
import * as KeyOrder from "../../KeyOrder.ts"
import { describe, isUnreadable } from "../Database/DatabaseError.ts"
import type { ReadConnection } from "../Database/Reader/ReadConnection.ts"
import { afterAllTexts, printed, printedChange, take } from "./Printed.ts"

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

/** The reads of the change log, from the snapshot of the connection. Statements throw `SqliteError`. */
export class ChangeQueries {
  private readonly statements: ReturnType<typeof prepare>

  constructor(connection: ReadConnection) {
    this.statements = connection.prepare(prepare)
  }

  lastSeq(): number {
    return this.statements.last.get() ?? 0
  }

  /** `epoch` is that of the log that the connection reads. */
  read(query: ChangeQuery, epoch: string): LogRead {
    const { damage, first, last } = this.ends(query.after)
    // Records are dense, and the newest is never removed: records that are missing at the start were trimmed.
    const read: LogRead =
      first !== null && query.after < first - 1
        ? { _tag: "TrimmedBefore", trimmedSeq: first - 1 }
        : this.page(query, last ?? 0, epoch)
    return damage === undefined ? read : { ...read, damage }
  }

  private page(query: ChangeQuery, last: number, epoch: string): ChangePage {
    const { after, limit, namespace, tenant } = query
    if (after >= last) return { changes: [], lastSeq: last, epoch, isComplete: false }
    const end = namespace === undefined ? last : Math.min(after + scanned, last)
    const { isCut, texts } =
      namespace !== undefined
        ? this.takePart(query, namespace, end)
        : tenant === ""
          ? take(this.statements.changes, [after, limit], pageBytes)
          : take(this.statements.tenantChanges, [tenant, after, limit], pageBytes)
    const changes = texts.map(Change.encoded)
    const isFull = isCut || changes.length === limit
    return { changes, lastSeq: isFull ? changes.at(-1)!.seq : end, epoch, isComplete: isFull || end < last }
  }

  /** The records of a part of a namespace, up to the one with this `seq`. */
  private takePart({ after, limit, prefix = "", tenant }: ChangeQuery, namespace: string, upTo: number) {
    const own = Entry.tenantOf(namespace)
    if (!prefix.isWellFormed() || (tenant !== "" && tenant !== own)) return { texts: [], isCut: false }
    const end = KeyOrder.endOfPrefix(prefix) ?? afterAllTexts
    const part: PartParameters = [after, upTo, namespace, prefix, end, limit]
    return own === ""
      ? take(this.statements.partChanges, part, pageBytes)
      : take(this.statements.tenantPartChanges, [own, ...part], pageBytes)
  }

  /** If the first `seq` cannot be read, the first one after `after`. */
  private ends(after: number): Ends {
    try {
      return this.statements.ends.get()!
    } catch (error) {
      if (!isUnreadable(error)) throw error
      const last = this.lastSeq()
      return { first: after < last ? this.statements.next.get(after + 1)! : last, last, damage: describe(error) }
    }
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

const prepare = (db: Database.Database) => ({
  ends: db.prepare<[], Ends>("SELECT (SELECT min(seq) FROM changes) AS first, (SELECT max(seq) FROM changes) AS last"),
  // A separate statement: the end of the log can be read even if its start cannot.
  last: db.prepare<[], number | null>("SELECT max(seq) FROM changes").pluck(),
  // At or after a number: the record before it may be the unreadable one.
  next: db.prepare<[number], number | null>("SELECT min(seq) FROM changes WHERE seq >= ?").pluck(),
  changes: printed<[number, number]>(db, printedChange, "FROM changes WHERE seq >= ? + 1 ORDER BY seq LIMIT ?"),
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
  )
})
