/**
 * Rows that SQLite prints, as their readers need JSON text.
 */
import type Database from "better-sqlite3"

/** A condition on the time. */
export const visible = "(expires_at IS NULL OR expires_at > ?)"

/** What `toJson` of an entry prints. Names hold no U+0000, at which SQLite's texts would end. */
export const printedEntry = `format(
  '{"namespace":%s,"key":%s,"value":%s,"version":%d,"updatedBy":%s,"updatedAt":%d,"expiresAt":%s}',
  json_quote(namespace), json_quote(key), value, version, json_quote(updated_by), updated_at,
  coalesce(expires_at, 'null')
)`

/** What `encodeWithoutValue` of an entry prints. */
export const printedKey = `format(
  '{"namespace":%s,"key":%s,"version":%d,"updatedBy":%s,"updatedAt":%d,"expiresAt":%s}',
  json_quote(namespace), json_quote(key), version, json_quote(updated_by), updated_at, coalesce(expires_at, 'null')
)`

/** What `encode` of a change prints. */
export const printedChange = `format(
  '{"seq":%d,"op":"%s","namespace":%s,"key":%s,"value":%s,"version":%d,"actor":%s,"timestamp":%d,"tenantId":%s}',
  seq, op, json_quote(namespace), json_quote(key), coalesce(value, 'null'), version, json_quote(actor), timestamp,
  json_quote(tenant)
)`

export type ListParameters = [namespace: string, start: string, end: string | Buffer, now: number, limit: number]

/** A statement whose rows are JSON texts, and the sum of the sizes of their values. */
export interface Printed<Parameters extends Array<unknown>> {
  readonly size: Database.Statement<Parameters, number | null>
  readonly print: Database.Statement<Parameters, string>
}

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

/** The statements of a list whose entries are printed so. */
export const prepareList = (db: Database.Database, text: string) => {
  const rows = (comparison: ">" | ">=", order: "ASC" | "DESC") =>
    printed<ListParameters>(
      db,
      text,
      `FROM entries WHERE namespace = ? AND key ${comparison} ? AND key < ? AND ${visible} ORDER BY key ${order} LIMIT ?`
    )
  return { from: rows(">=", "ASC"), after: rows(">", "ASC"), down: rows(">=", "DESC") }
}
