/** Rows that SQLite prints as the JSON text that their readers need. */
import type Database from "better-sqlite3"
import { isUnreadable } from "../Database/DatabaseError.ts"

/** Greater than every text: SQLite orders blobs after texts. */
export const afterAllTexts = Buffer.alloc(0)

/** The condition on the expiry. */
export const visible = "(expires_at IS NULL OR expires_at > ?)"

/** Equals `toJson` of an entry. Names never contain U+0000, which would end a text in SQLite. */
export const printedEntry = `format(
  '{"namespace":%s,"key":%s,"value":%s,"version":%d,"updatedBy":%s,"updatedAt":%d,"expiresAt":%s}',
  json_quote(namespace), json_quote(key), value, version, json_quote(updated_by), updated_at,
  coalesce(expires_at, 'null')
)`

/** Equals `encodeWithoutValue` of an entry. */
export const printedKey = `format(
  '{"namespace":%s,"key":%s,"version":%d,"updatedBy":%s,"updatedAt":%d,"expiresAt":%s}',
  json_quote(namespace), json_quote(key), version, json_quote(updated_by), updated_at, coalesce(expires_at, 'null')
)`

/** Equals `encode` of a change. */
export const printedChange = `format(
  '{"seq":%d,"op":"%s","namespace":%s,"key":%s,"value":%s,"version":%d,"actor":%s,"timestamp":%d,"tenantId":%s}',
  seq, op, json_quote(namespace), json_quote(key), coalesce(value, 'null'), version, json_quote(actor), timestamp,
  json_quote(tenant)
)`

/** The parameters of a statement that lists entries. Times are epoch milliseconds. */
export type ListParameters = [namespace: string, start: string, end: string | Buffer, now: number, limit: number]

/** A statement whose rows are JSON texts, and the sum of the sizes of their values. */
export interface Printed<Parameters extends Array<unknown>> {
  readonly size: Database.Statement<Parameters, number | null>
  readonly print: Database.Statement<Parameters, string>
}

/** Prepares both statements. `text` is the SQL expression of a row, and `rows` the clauses from `FROM`. */
export const printed = <Parameters extends Array<unknown>>(
  db: Database.Database,
  text: string,
  rows: string
): Printed<Parameters> => ({
  size: db
    .prepare<Parameters, number | null>(`SELECT sum(size) FROM (SELECT octet_length(value) AS size ${rows})`)
    .pluck(),
  print: db.prepare<Parameters, string>(`SELECT ${text} ${rows}`).pluck()
})

export const prepareList = (db: Database.Database, text: string) => {
  const rows = (comparison: ">" | ">=", order: "ASC" | "DESC") =>
    printed<ListParameters>(
      db,
      text,
      `FROM entries WHERE namespace = ? AND key ${comparison} ? AND key < ? AND ${visible} ORDER BY key ${order} LIMIT ?`
    )
  return { from: rows(">=", "ASC"), after: rows(">", "ASC"), down: rows(">=", "DESC") }
}

/** The rows up to the one with which their values reach `maxBytes`, or before one that cannot be read. */
export const take = <Parameters extends Array<unknown>>(
  { print, size }: Printed<Parameters>,
  parameters: Parameters,
  maxBytes: number
): { readonly texts: Array<string>; readonly isCut: boolean } => {
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

/** Statements for the size of some change records and for their text. A limit would need a subquery, which copies rows. */
export interface Joined<Parameters extends Array<unknown>, Size> {
  readonly size: Database.Statement<Parameters, Size>
  /** The records up to the one with the last parameter, separated by commas. */
  readonly text: Database.Statement<Parameters, string | null>
}

/** The number of records of a page, the `seq` of the last one, and the bytes of their values. */
export type Extent = [count: number, upTo: number, size: number]

const prepareText = <Parameters extends Array<unknown>>(db: Database.Database, rows: string) =>
  db.prepare<Parameters, string | null>(`SELECT group_concat(${printedChange}) ${rows}`).pluck()

/** All records of a range. SQLite scans it in the order of its numbers. */
export const prepareAll = (db: Database.Database): Joined<[after: number, upTo: number], number> => {
  // At or after a number: the record before it may be the unreadable one.
  const rows = "FROM changes WHERE seq >= ? + 1 AND seq <= ?"
  const size = `SELECT total(octet_length(value)) ${rows}`
  return { size: db.prepare<[number, number], number>(size).pluck(), text: prepareText(db, rows) }
}

/** The records of a tenant. The last parameter of `size` is a limit. */
export const prepareTenant = (db: Database.Database): Joined<[tenant: string, after: number, end: number], Extent> => {
  const rows = "FROM changes INDEXED BY changes_by_tenant WHERE tenant = ? AND tenant <> '' AND seq > ?"
  const sizes = `SELECT seq, octet_length(value) AS size ${rows} ORDER BY seq LIMIT ?`
  const size = `SELECT count(*), coalesce(max(seq), 0), total(size) FROM (${sizes})`
  return {
    size: db.prepare<[string, number, number], Extent>(size).raw(),
    text: prepareText(db, `${rows} AND seq <= ?`)
  }
}
