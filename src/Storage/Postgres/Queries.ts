/**
 * The reads of the key-value store. Each is one statement, and so reads one snapshot. Lists and changes are printed by the
 * database, as their readers need JSON text.
 */

import type { JsonText } from "../../Json/JsonText.ts"
import * as Change from "../../Kv/Change.ts"
import type { ChangePage, ChangeQuery, Due } from "../../Kv/ChangeLog.ts"
import * as Entry from "../../Kv/Entry.ts"
import {
  type Address,
  type EntriesRead,
  mostDue,
  type NamespacePage,
  type NamespaceQuery,
  type WholeListQuery
} from "../../Kv/Store.ts"
import * as KeyOrder from "../KeyOrder.ts"
import type { Query, Statement } from "./Connections.ts"
import * as Encoding from "./Encoding.ts"

/** A page ends after the value with which it comes to this many bytes. */
const pageSize = 4 * 1024 * 1024

const lastSeq = "coalesce((SELECT max(seq) FROM causeway.changes), 0)"

const getStatement: Statement = {
  name: "get",
  text: `SELECT version, updated_by, updated_at, expires_at, value FROM causeway.entries
    WHERE namespace = $1 AND key = $2 AND (expires_at IS NULL OR expires_at > $3)`
}

type EntryRow = readonly [
  version: number,
  updatedBy: string,
  updatedAt: number,
  expiresAt: number | null,
  value: JsonText
]

/** The entry, unless it is absent or past its end at `now`. */
export const get = (namespace: string, key: string, now: number): Query<Entry.StoredEntry | undefined> => ({
  statement: getStatement,
  values: [namespace, key, now],
  decode: ([row]) => {
    if (row === undefined) return undefined
    const [version, updatedBy, updatedAt, expiresAt, value] = row as EntryRow
    return { namespace, key, value, version, updatedBy, updatedAt, expiresAt }
  }
})

/** What `toJson` of an entry prints. */
const printedEntry = `concat('{"namespace":', to_json(namespace), ',"key":', to_json(key), ',"value":', value,
  ',"version":', version, ',"updatedBy":', to_json(updated_by), ',"updatedAt":', updated_at, ',"expiresAt":',
  coalesce(expires_at::text, 'null'), '}')`

/** What `encodeWithoutValue` of an entry prints. */
const printedKey = `concat('{"namespace":', to_json(namespace), ',"key":', to_json(key), ',"version":', version,
  ',"updatedBy":', to_json(updated_by), ',"updatedAt":', updated_at, ',"expiresAt":',
  coalesce(expires_at::text, 'null'), '}')`

/** What `encode` of a change prints. */
const printedChange = `concat('{"seq":', seq, ',"op":"', op, '","namespace":', to_json(namespace), ',"key":',
  to_json(key), ',"value":', coalesce(value, 'null'), ',"version":', version, ',"actor":', to_json(actor),
  ',"timestamp":', timestamp, ',"tenantId":', to_json(tenant), '}')`

/** Between the texts of a page: it occurs in no JSON text. */
const separator = "\u001e"

/** The values are read only where all of them are taken. */
const getManyStatement: Statement = {
  name: "get many",
  text: `WITH found AS MATERIALIZED (
      SELECT n.position, octet_length(e.value)::bigint AS bytes
      FROM unnest($1::text[], $2::text[]) WITH ORDINALITY n(namespace, key, position)
      JOIN causeway.entries e ON e.namespace = n.namespace AND e.key = n.key
      WHERE e.expires_at IS NULL OR e.expires_at > $3
    ), total AS (SELECT coalesce(sum(bytes), 0) <= $4 AS is_taken FROM found)
    SELECT is_taken, ${lastSeq}, causeway.epoch(), read.positions, read.texts
    FROM total LEFT JOIN LATERAL (
      SELECT array_to_string(array_agg(position ORDER BY position), ',') AS positions,
        string_agg(json, U&'\\001e' ORDER BY position) AS texts
      FROM (
        SELECT n.position, ${printedEntry} AS json
        FROM unnest($1::text[], $2::text[]) WITH ORDINALITY n(asked_namespace, asked_key, position)
        JOIN causeway.entries ON namespace = asked_namespace AND key = asked_key
        WHERE expires_at IS NULL OR expires_at > $3
      ) printed
    ) read ON is_taken`
}

/** The entries of some addresses, or nothing where their values have more bytes. */
export const getMany = (
  addresses: ReadonlyArray<Address>,
  maxBytes: number,
  now: number
): Query<EntriesRead | undefined> => ({
  statement: getManyStatement,
  values: [
    Encoding.texts(addresses.map(({ namespace }) => namespace)),
    Encoding.texts(addresses.map(({ key }) => key)),
    now,
    maxBytes
  ],
  decode: ([row]) => {
    const [isTaken, lastSeq, epoch, positions, texts] = row as readonly [
      boolean,
      number,
      string,
      string | null,
      string | null
    ]
    if (!isTaken) return undefined
    const entries: Array<Entry.EncodedEntry | undefined> = addresses.map(() => undefined)
    if (positions !== null && texts !== null) {
      const printed = texts.split(separator)
      for (const [index, position] of positions.split(",").entries()) {
        entries[Number(position) - 1] = Entry.encoded(printed[index]!)
      }
    }
    return { entries, lastSeq, epoch }
  }
})

/**
 * The texts of a page in one column, which costs less than a row for each, and how many rows there are. Texts end with
 * the one with which the values come to so many bytes. Sizes are known without reading the values.
 */
const page = (printed: string, order: string, rows: string, size: string): string =>
  `SELECT string_agg(json, U&'\\001e') AS texts, count(*) AS selected FROM (
    SELECT CASE WHEN total - bytes < ${size} THEN ${printed} END AS json FROM (
      SELECT *, sum(bytes) OVER (ORDER BY ${order} ROWS UNBOUNDED PRECEDING) AS total FROM (
        SELECT *, coalesce(octet_length(value), 0)::bigint AS bytes ${rows} ORDER BY ${order} LIMIT $1
      ) selected
    ) summed ORDER BY ${order}
  ) printed`

/** The texts of a page, and whether it was cut short for its size. */
const textsOf = (texts: unknown, selected: unknown): { readonly texts: Array<string>; readonly isCut: boolean } => {
  const all = texts === null ? [] : (texts as string).split(separator)
  return { texts: all, isCut: (selected as number) > all.length }
}

/** Entries of a selection that are visible at `now` (epoch milliseconds) and come after a key. */
export interface EntryQuery extends WholeListQuery {
  readonly after: string
  readonly limit: number
  readonly now: number
  /** The page ends after the value with which it comes to this many bytes. */
  readonly size?: number
}

export interface EntryRows {
  readonly entries: ReadonlyArray<Entry.EncodedEntry>
  readonly more: boolean
  readonly lastSeq: number
  readonly epoch: string
  readonly count?: number
}

/** Which of the statements of lists a query takes. */
interface ListForm {
  /** Whether the page starts after a key, rather than with it. */
  readonly isAfter: boolean
  /** Whether the page ends before a key. */
  readonly isBounded: boolean
  readonly isDescending: boolean
  readonly keysOnly: boolean
  readonly isCounted: boolean
  /** Whether what is counted ends before a key. */
  readonly isCountBounded: boolean
  /** Whether what is counted is the namespace. */
  readonly isAllCounted: boolean
}

/**
 * How many entries a range has. Those that have expired are counted by themselves, so that the others can be by the index
 * of names alone. The bounds are parameters.
 */
const counted = (low: string | undefined, high: string | undefined): string => {
  if (low === undefined) {
    return `coalesce((SELECT entries FROM causeway.namespaces WHERE namespace = $2), 0)
      - (SELECT count(*) FROM causeway.entries WHERE namespace = $2 AND expires_at <= $4)`
  }
  const range = `namespace = $2 AND key >= ${low}${high === undefined ? "" : ` AND key < ${high}`}`
  const count = (condition: string) => `(SELECT count(*) FROM causeway.entries WHERE ${condition})`
  return `${count(range)} - ${count(`${range} AND expires_at <= $4`)}`
}

const listStatement = (form: ListForm, number: number): Statement => {
  const { isAfter, isAllCounted, isBounded, isCountBounded, isCounted, isDescending, keysOnly } = form
  const rows = `FROM causeway.entries WHERE namespace = $2 AND key ${isAfter ? ">" : ">="} $3
    ${isBounded ? "AND key < $6" : ""} AND (expires_at IS NULL OR expires_at > $4)`
  const [low, high] = isBounded ? ["$7", "$8"] : ["$6", "$7"]
  return {
    name: `list ${number}`,
    text: `SELECT page.texts, page.selected, ${lastSeq}, causeway.epoch()
    ${isCounted ? `, ${counted(isAllCounted ? undefined : low, isCountBounded ? high : undefined)}` : ""} FROM (
      ${page(keysOnly ? printedKey : printedEntry, isDescending ? "key DESC" : "key", rows, "$5")}
    ) page`
  }
}

const listStatements: Array<Statement | undefined> = []

/** The statement of a form, made when it is first needed. */
const listOf = (form: ListForm): Statement => {
  const number =
    Number(form.isAfter) +
    2 * Number(form.isBounded) +
    4 * Number(form.isDescending) +
    8 * Number(form.keysOnly) +
    16 * Number(form.isCounted) +
    32 * Number(form.isCountBounded) +
    64 * Number(form.isAllCounted)
  listStatements[number] ??= listStatement(form, number)
  return listStatements[number]
}

/** The least text after all that start with a text and U+0000, which no key holds. */
const nul = "\u0000"

/**
 * The greatest text without U+0000 that is not greater, so that the same keys come after it: the database takes no
 * U+0000.
 */
const floor = (key: string): string => {
  const at = key.indexOf(nul)
  return at === -1 ? key : key.slice(0, at)
}

/** The least text without U+0000 that is not less, so that the same keys come before it. */
const ceiling = (key: string): string => {
  const at = key.indexOf(nul)
  return at === -1 ? key : `${key.slice(0, at)}\u0001`
}

/** The lesser of an end and a key, where there is a key. */
const before = (end: string | undefined, key: string): string | undefined =>
  key === "" || (end !== undefined && KeyOrder.compare(key, end) > 0) ? end : key

/** A page of a list. */
export const entries = (query: EntryQuery): Query<EntryRows> => {
  const { after, isCounted = false, isDescending = false, keysOnly = false, limit, namespace, now } = query
  const range = KeyOrder.rangeOf(query)
  const { low, high } = range ?? { low: "", high: undefined }
  const floored = floor(after)
  const end = isDescending ? before(high, ceiling(after)) : high
  const isAfter = !isDescending && floored !== "" && KeyOrder.compare(low, floored) <= 0
  const isBounded = end !== undefined
  const size = keysOnly ? Number.MAX_SAFE_INTEGER : (query.size ?? pageSize)
  // A list that can have no entries has no range to count.
  const hasCount = isCounted && range !== undefined
  const isCountBounded = hasCount && high !== undefined
  const isAllCounted = hasCount && !isCountBounded && low === ""
  return {
    statement: listOf({
      isAfter,
      isBounded,
      isDescending,
      keysOnly,
      isCounted: hasCount,
      isCountBounded,
      isAllCounted
    }),
    values: [
      range === undefined ? 0 : limit + 1,
      namespace,
      isAfter ? floored : low,
      now,
      size,
      ...(isBounded ? [end] : []),
      ...(hasCount && !isAllCounted ? [low] : []),
      ...(isCountBounded ? [high] : [])
    ],
    decode: ([row]) => {
      const { isCut, texts } = textsOf(row![0], row![1])
      const more = isCut || texts.length > limit
      if (texts.length > limit) texts.length = limit
      const entries = texts.map(keysOnly ? Entry.encodedWithoutValue : Entry.encoded)
      const count = isCounted ? { count: hasCount ? (row![4] as number) : 0 } : {}
      return { entries, more, lastSeq: row![2] as number, epoch: row![3] as string, ...count }
    }
  }
}

const namespacesStatement = (isBounded: boolean): Statement => ({
  name: isBounded ? "namespaces bounded" : "namespaces",
  text: `SELECT (
      SELECT coalesce(json_agg(json_build_array(page.namespace, page.count) ORDER BY page.namespace), '[]')
      FROM (
        SELECT n.namespace, n.entries - coalesce(due.entries, 0) AS count
        FROM causeway.namespaces n LEFT JOIN (
          SELECT e.namespace, count(*) AS entries
          FROM (SELECT namespace FROM causeway.entries WHERE expires_at <= $1 LIMIT ${mostDue}) e GROUP BY e.namespace
        ) due ON due.namespace = n.namespace
        WHERE n.namespace >= $2 AND n.namespace > $3 AND (n.namespace = $4 OR n.namespace >= $5)
          ${isBounded ? "AND n.namespace < $7" : ""} AND n.entries > coalesce(due.entries, 0)
        ORDER BY n.namespace LIMIT $6
      ) page
    ), ${lastSeq}, causeway.epoch()`
})

const allNamespaces = namespacesStatement(false)
const boundedNamespaces = namespacesStatement(true)

/** A page of namespaces. */
export const namespaces = (query: NamespaceQuery, now: number): Query<NamespacePage> => {
  const { limit } = query
  const range = KeyOrder.rangeOfNamespaces(query)
  const { from, high, low, only } = range ?? { from: "", high: undefined, low: "", only: "" }
  const wanted = range === undefined ? 0 : limit + 1
  return {
    statement: high === undefined ? allNamespaces : boundedNamespaces,
    values: [now, low, floor(query.after), only, from, wanted, ...(high === undefined ? [] : [high])],
    decode: ([row]) => {
      const all = JSON.parse(row![0] as string) as ReadonlyArray<readonly [string, number]>
      const namespaces = all.slice(0, limit).map(([namespace, count]) => ({ namespace, count }))
      return { namespaces, lastSeq: row![1] as number, epoch: row![2] as string, more: all.length > limit }
    }
  }
}

const changesStatement = (name: string, condition: string): Statement => ({
  name,
  text: `SELECT page.texts, page.selected, ${lastSeq}, log.trimmed_seq, causeway.epoch() FROM causeway.log, (
    ${page(printedChange, "seq", `FROM causeway.changes WHERE ${condition}`, String(pageSize))}
  ) page`
})

const allChanges = changesStatement("changes", "seq > $2")

// The empty tenant is ruled out in words, so that the index that leaves it out can be used.
const tenantChanges = changesStatement("changes of tenant", "tenant = $3 AND tenant <> '' AND seq > $2")

/** Records that a read of a namespace scans at most, as no index leads to those of a namespace. */
const scanned = 2000

const partChanges = changesStatement(
  "changes of namespace",
  `seq > $2 AND seq <= $2::bigint + ${scanned} AND namespace = $3 AND starts_with(key, $4)`
)

/** The statement for a query, and its parameters. */
const changesBy = ({ after, limit, namespace, prefix = "", tenant }: ChangeQuery) => {
  if (namespace === undefined) {
    return tenant === ""
      ? { statement: allChanges, values: [limit, after] }
      : { statement: tenantChanges, values: [limit, after, tenant] }
  }
  const isPossible = prefix.isWellFormed() && (tenant === "" || tenant === Entry.tenantOf(namespace))
  return { statement: partChanges, values: [isPossible ? limit : 0, after, namespace, isPossible ? prefix : ""] }
}

export interface TrimmedBefore {
  readonly _tag: "TrimmedBefore"
  readonly trimmedSeq: number
  readonly epoch: string
}

/** A page of the log. */
export const changes = (query: ChangeQuery): Query<ChangePage | TrimmedBefore> => ({
  ...changesBy(query),
  decode: ([row]) => {
    const { after, limit, namespace } = query
    const [printed, selected, last, trimmedSeq, epoch] = row as readonly [string | null, number, number, number, string]
    if (after < trimmedSeq) return { _tag: "TrimmedBefore", trimmedSeq, epoch }
    const { isCut, texts } = textsOf(printed, selected)
    const changes = texts.map(Change.encoded)
    const isFull = isCut || changes.length === limit
    const end = namespace === undefined ? last : Math.min(after + scanned, last)
    return { changes, lastSeq: isFull ? changes.at(-1)!.seq : end, epoch, isComplete: isFull || end < last }
  }
})

/** What a node asks for again and again. */
export interface Pulse {
  readonly lastSeq: number
  readonly epoch: string
  /** The clock of the database, in epoch milliseconds. */
  readonly now: number
}

/** The end of the log, and the time. */
export const pulse: Query<Pulse> = {
  statement: {
    name: "pulse",
    text: `SELECT ${lastSeq}, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, causeway.epoch()`
  },
  values: [],
  decode: ([row]) => ({ lastSeq: row![0] as number, now: row![1] as number, epoch: row![2] as string })
}

/** The last `seq`. */
export const end: Query<number> = {
  statement: { name: "last_seq", text: `SELECT ${lastSeq}` },
  values: [],
  decode: ([row]) => row![0] as number
}

/** What there is to do next, by the clock of the database. Removed records are no more looked at. */
export const due: Query<Due> = {
  statement: {
    name: "due",
    text: `SELECT
      (SELECT expires_at FROM causeway.entries WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT 1),
      (SELECT timestamp FROM causeway.changes
        WHERE seq > (SELECT trimmed_seq FROM causeway.log) AND seq < (SELECT max(seq) FROM causeway.changes)
        ORDER BY seq LIMIT 1)`
  },
  values: [],
  decode: ([row]) => ({ expiresAt: row![0] as number | null, oldestAt: row![1] as number | null })
}

/** What changes with each trim, and with the identity of the log. */
export const history: Query<string> = {
  statement: { name: "history", text: "SELECT log.history || ' ' || causeway.epoch() FROM causeway.log" },
  values: [],
  decode: ([row]) => row![0] as string
}
