/**
 * Lists of entries, and how many entries they have.
 */
import * as Entry from "../../../Kv/Entry.ts"
import { pageBytes, type Selection } from "../../../Kv/Store.ts"
import type { EntryQuery } from "../../EntryRows.ts"
import * as KeyOrder from "../../KeyOrder.ts"
import type { Query, Statement } from "../Database/Statement.ts"
import { isDue } from "./Expiry.ts"
import { ceiling, floor, lastSeq, page, printedEntry, printedKey, textsOf } from "./Page.ts"

/** Entries that a page counts, and rows that have expired which it looks at; there may be more of both. */
const countedWithPage = 5000
const dueWithPage = 2000

/** Names that one statement counts, and rows, which are read for it. */
const namesAtOnce = 20_000
const rowsAtOnce = 5000

/** How the entries of a list are to be counted. */
export interface Counting {
  /** Whether rows are read, as so many have expired that they cannot be counted by themselves. */
  readonly readsRows: boolean
  /** How many of the names are those of entries that have expired, where rows are not read. */
  readonly due: number
}

export interface EntryPage {
  readonly entries: ReadonlyArray<Entry.EncodedEntry>
  readonly more: boolean
  readonly lastSeq: number
  readonly epoch: string
  readonly count?: number
  /** In place of the count where there is too much to count at once. */
  readonly counting?: Counting
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
 * How many entries a range has, and how many of them have expired. Those are counted by themselves, so that the others
 * can be by the index of names alone. Neither look goes beyond its bound: then there is one more.
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

const listStatement = (form: ListForm, number: number): Statement => {
  const { isAfter, isAllCounted, isBounded, isCountBounded, isCounted, isDescending, keysOnly } = form
  const rows = `FROM causeway.entries WHERE namespace = $2 AND key ${isAfter ? ">" : ">="} $3
    ${isBounded ? "AND key < $6" : ""} AND (expires_at IS NULL OR expires_at > $4)`
  const [low, high] = isBounded ? ["$7", "$8"] : ["$6", "$7"]
  const range = isAllCounted
    ? "namespace = $2"
    : `namespace = $2 AND key >= ${low}${isCountBounded ? ` AND key < ${high}` : ""}`
  const { columns, due } = counted(isAllCounted, range)
  return {
    name: `list ${number}`,
    text: `SELECT page.texts, page.selected, ${lastSeq}, causeway.epoch() ${isCounted ? `, ${columns}` : ""} FROM (
      ${page(keysOnly ? printedKey : printedEntry, isDescending ? "key DESC" : "key", rows, "$5")}
    ) page ${isCounted ? `, ${due}` : ""}`
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

/** The lesser of an end and a key, where there is a key. */
const before = (end: string | undefined, key: string): string | undefined =>
  key === "" || (end !== undefined && KeyOrder.compare(key, end) > 0) ? end : key

/** A page of a list. */
export const entries = (query: EntryQuery): Query<EntryPage> => {
  const { after, isCounted = false, isDescending = false, keysOnly = false, limit, namespace, now } = query
  const range = KeyOrder.rangeOf(query)
  const { low, high } = range ?? { low: "", high: undefined }
  const floored = floor(after)
  const end = isDescending ? before(high, ceiling(after)) : high
  const isAfter = !isDescending && floored !== "" && KeyOrder.compare(low, floored) <= 0
  const isBounded = end !== undefined
  const size = keysOnly ? Number.MAX_SAFE_INTEGER : (query.size ?? pageBytes)
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
 * How many names a selection has, or how many entries that are visible at `now` (epoch milliseconds), in the part that
 * follows after a key; `""` for the first part.
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
    statement: {
      name: "count",
      text: `SELECT count(*) ${filter}, count(*), max(key) FROM (
          SELECT key${column} FROM causeway.entries
          WHERE namespace = $1 AND key ${after === "" ? ">=" : ">"} $2 ${high === undefined ? "" : `AND key < ${end}`}
          ORDER BY key LIMIT ${limit}
        ) k`
    },
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
