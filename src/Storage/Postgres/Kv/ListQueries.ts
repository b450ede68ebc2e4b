/**
 * Queries for lists of entries and for their counts.
 */
import { compare } from "../../../Client/KeyOrder.ts"
import * as Entry from "../../../Kv/Entry.ts"
import { pageBytes, type Selection } from "../../../Kv/Store.ts"
import type { EntryQuery } from "../../KeyOrder.ts"
import * as KeyOrder from "../../KeyOrder.ts"
import type { Query } from "../Database/Statement.ts"
import { ceiling, floor, isDue, lastSeq, page, printedEntry, printedKey, textsOf } from "./SqlParts.ts"

/** The maximum numbers of entries that a page counts, and of expired rows that it visits. More of both may exist. */
const countedWithPage = 5000
const dueWithPage = 2000

/** The maximum numbers of names, and of rows, that one statement counts. */
const namesAtOnce = 20_000
const rowsAtOnce = 5000

/** How the entries of a list are counted. */
export interface Counting {
  /** Whether rows are read, because too many have expired to count those separately. */
  readonly readsRows: boolean
  /** The number of names whose entries have expired, if rows are not read. */
  readonly due: number
}

/** A page of entries, with the last `seq` and the epoch of the same snapshot. */
export interface EntryPage {
  readonly entries: ReadonlyArray<Entry.EncodedEntry>
  readonly more: boolean
  readonly lastSeq: number
  readonly epoch: string
  readonly count?: number
  /** Instead of the count, if one statement cannot count all. */
  readonly counting?: Counting
}

type Statement = Pick<Query<unknown>, "name" | "text">

/** The properties of a query that determine its statement. */
interface ListForm {
  /** Whether the page starts after a key, rather than with it. */
  readonly isAfter: boolean
  /** Whether the page ends before a key. */
  readonly isBounded: boolean
  readonly isDescending: boolean
  readonly keysOnly: boolean
  readonly isCounted: boolean
  /** Whether the counted range ends before a key. */
  readonly isCountBounded: boolean
  /** Whether the whole namespace is counted. */
  readonly isAllCounted: boolean
}

/**
 * SQL for the number of entries of a range, and for the number of those that have expired. The expired ones are counted
 * separately, so that the index of names is sufficient for the rest. A count above its bound is the bound plus one.
 */
const counted = (isAll: boolean, range: string) => ({
  columns: `${
    isAll
      ? "coalesce((SELECT entries FROM causeway.namespaces WHERE namespace = $2), 0)"
      : `(SELECT count(*) FROM (SELECT FROM causeway.entries WHERE ${range} ORDER BY key LIMIT ${countedWithPage + 1}) k)`
  }, due.looked, due.found`,
  due: `(
    SELECT count(*) AS looked, count(*) FILTER (WHERE ${range}) AS found FROM (
      SELECT namespace, key FROM causeway.entries WHERE ${isDue("$4")} ORDER BY expires_at LIMIT ${dueWithPage + 1}
    ) e
  ) due`
})

const listStatement = (form: ListForm, name: string): Statement => {
  const { isAfter, isAllCounted, isBounded, isCountBounded, isCounted, isDescending, keysOnly } = form
  const rows = `FROM causeway.entries WHERE namespace = $2 AND key ${isAfter ? ">" : ">="} $3
    ${isBounded ? "AND key < $6" : ""} AND (expires_at IS NULL OR expires_at > $4)`
  const [low, high] = isBounded ? ["$7", "$8"] : ["$6", "$7"]
  const range = isAllCounted
    ? "namespace = $2"
    : `namespace = $2 AND key >= ${low}${isCountBounded ? ` AND key < ${high}` : ""}`
  const { columns, due } = counted(isAllCounted, range)
  return {
    name,
    text: `SELECT page.texts, page.selected, ${lastSeq}, causeway.epoch() ${isCounted ? `, ${columns}` : ""} FROM (
      ${page(keysOnly ? printedKey : printedEntry, isDescending ? "key DESC" : "key", rows, "$5")}
    ) page ${isCounted ? `, ${due}` : ""}`
  }
}

const listStatements = new Map<string, Statement>()

/** Returns the statement of a form, which is made when it is first needed. */
const listOf = (form: ListForm): Statement => {
  const name = `list ${Object.values(form).map(Number).join("")}`
  const statement = listStatements.get(name) ?? listStatement(form, name)
  listStatements.set(name, statement)
  return statement
}

/** Returns the lesser of an end and a key; the end if the key is empty. */
const before = (end: string | undefined, key: string): string | undefined =>
  key === "" || (end !== undefined && compare(key, end) > 0) ? end : key

/** A page of a list. */
export const entries = (query: EntryQuery): Query<EntryPage> => {
  const { after, isCounted = false, isDescending = false, keysOnly = false, limit, namespace, now } = query
  const range = KeyOrder.rangeOf(query)
  const { low, high } = range ?? { low: "", high: undefined }
  const floored = floor(after)
  const end = isDescending ? before(high, ceiling(after)) : high
  const isAfter = !isDescending && floored !== "" && compare(low, floored) <= 0
  const isBounded = end !== undefined
  const size = keysOnly ? Number.MAX_SAFE_INTEGER : (query.size ?? pageBytes)
  // A list that cannot have entries has no range to count.
  const hasCount = isCounted && range !== undefined
  const isCountBounded = hasCount && high !== undefined
  const isAllCounted = hasCount && !isCountBounded && low === ""
  return {
    ...listOf({ isAfter, isBounded, isDescending, keysOnly, isCounted: hasCount, isCountBounded, isAllCounted }),
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
      const page = { entries, more, lastSeq: row![2] as number, epoch: row![3] as string }
      if (!isCounted) return page
      if (!hasCount) return { ...page, count: 0 }
      const [names, looked, due] = row!.slice(4) as [number, number, number]
      const readsRows = looked > dueWithPage
      return readsRows || (!isAllCounted && names > countedWithPage)
        ? { ...page, counting: { readsRows, due } }
        : { ...page, count: names - due }
    }
  }
}

/** A part of the names of a selection. */
export interface Part {
  readonly count: number
  /** The last key of the part, if there may be another part. */
  readonly last: string | undefined
}

/**
 * The number of names of a selection, or of entries that are visible at `now` (epoch milliseconds), in the part after a
 * key; `""` for the first part.
 */
export const part = (selection: Selection, after: string, readsRows: boolean, now: number): Query<Part> => {
  const range = KeyOrder.rangeOf(selection)
  const { low, high } = range ?? { low: "", high: undefined }
  const limit = readsRows ? rowsAtOnce : namesAtOnce
  const [column, filter] = readsRows
    ? [", expires_at", "FILTER (WHERE expires_at IS NULL OR expires_at > $3)"]
    : ["", ""]
  const end = readsRows ? "$4" : "$3"
  return {
    name: "count",
    text: `SELECT count(*) ${filter}, count(*), max(key) FROM (
        SELECT key${column} FROM causeway.entries
        WHERE namespace = $1 AND key ${after === "" ? ">=" : ">"} $2 ${high === undefined ? "" : `AND key < ${end}`}
        ORDER BY key LIMIT ${limit}
      ) k`,
    values: [
      selection.namespace,
      after === "" ? low : after,
      ...(readsRows ? [now] : []),
      ...(high === undefined ? [] : [high])
    ],
    decode: ([row]) => {
      const [count, read, last] = row as readonly [number, number, string | null]
      return { count, last: read < limit ? undefined : (last ?? undefined) }
    }
  }
}
