/** Queries for lists of entries and for their counts. */

import { compare } from "../../../Client/KeyOrder.ts"
import * as Entry from "../../../Kv/Entry.ts"
import {
  maxDue,
  type NamespacePage,
  type NamespaceQuery,
  pageBytes,
  type Selection,
  type TenantPage,
  type TenantQuery
} from "../../../Kv/Store.ts"
import type { EntryQuery } from "../../KeyOrder.ts"
import * as KeyOrder from "../../KeyOrder.ts"
import { type Query, textArray } from "../Database/Statement.ts"
import {
  baseEntries,
  ceiling,
  comeOrGone,
  floor,
  isDue,
  lastSeq,
  page,
  printedEntry,
  printedKey,
  tenantOf,
  textsOf
} from "../Schema/SqlParts.ts"

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

const listText = (form: ListForm): string => {
  const { isAfter, isAllCounted, isBounded, isCountBounded, isCounted, isDescending, keysOnly } = form
  const rows = `FROM causeway.entries WHERE namespace = $2 AND key ${isAfter ? ">" : ">="} $3
    ${isBounded ? "AND key < $6" : ""} AND (expires_at IS NULL OR expires_at > $4)`
  const [low, high] = isBounded ? ["$7", "$8"] : ["$6", "$7"]
  const range = isAllCounted
    ? "namespace = $2"
    : `namespace = $2 AND key >= ${low}${isCountBounded ? ` AND key < ${high}` : ""}`
  const { columns, due } = counted(isAllCounted, range)
  return `SELECT page.texts, page.selected, ${lastSeq}, causeway.epoch() ${isCounted ? `, ${columns}` : ""} FROM (
      ${page(keysOnly ? printedKey : printedEntry, isDescending ? "key DESC" : "key", rows, "$5")}
    ) page ${isCounted ? `, ${due}` : ""}`
}

const listTexts = new Map<string, string>()

/** Returns the text of a form, which is made when it is first needed. */
const listOf = (form: ListForm): string => {
  const key = Object.values(form).map(Number).join("")
  const text = listTexts.get(key) ?? listText(form)
  listTexts.set(key, text)
  return text
}

/** Returns the lesser of an end and a key; the end if the key is empty. */
const before = (end: string | undefined, key: string): string | undefined =>
  key === "" || (end !== undefined && compare(key, end) > 0) ? end : key

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
    text: listOf({ isAfter, isBounded, isDescending, keysOnly, isCounted: hasCount, isCountBounded, isAllCounted }),
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

/** SQL for the end of a range. `''` means no end; a text longer than any name in an index replaces it. */
const endOf = (high: string): string => `coalesce(nullif(${high}, ''), repeat(chr(1114111), 700))`

/** The number of entries of each namespace that have expired at `$1` and are still stored. */
const due = `due AS MATERIALIZED (
  SELECT e.namespace, count(*) AS entries FROM (
    SELECT namespace FROM causeway.entries WHERE ${isDue("$1")} ORDER BY expires_at LIMIT ${maxDue}
  ) e GROUP BY e.namespace
)`

/** SQL for the value of a name in a map. The planner would plan a join with its rows as a join with the whole table. */
const mapped = (map: string, name: string): string =>
  `coalesce(((SELECT ${map}.map FROM ${map}) ->> ${name})::bigint, 0)`

/** By namespace, the difference to its base number: the pending changes, minus the entries above. */
const changed = `changed AS MATERIALIZED (
  SELECT c.namespace, sum(c.entries)::bigint AS entries FROM (
    SELECT due.namespace, - due.entries AS entries FROM due
    UNION ALL SELECT w.namespace COLLATE "C", w.entries FROM causeway.waiting_counts() w
  ) c GROUP BY c.namespace
)`

const namespacesText = `WITH ${due}, ${changed}, net AS MATERIALIZED (
      SELECT jsonb_object_agg(changed.namespace, changed.entries) AS map FROM changed
    ), added AS MATERIALIZED (
      SELECT changed.namespace, changed.entries AS count FROM changed
      WHERE changed.entries > 0 AND ${baseEntries("changed.namespace")} = 0
    ) SELECT (
      SELECT coalesce(json_agg(json_build_array(page.namespace, page.count) ORDER BY page.namespace), '[]')
      FROM (
        SELECT part.namespace, part.count FROM unnest($2::text[], $3::text[]) range(low, high), LATERAL (
          (
            SELECT n.namespace, n.entries + ${mapped("net", "n.namespace")} AS count
            FROM causeway.base_namespaces n
            WHERE n.namespace >= range.low AND n.namespace < ${endOf("range.high")} AND n.namespace > $4
              AND n.entries + ${mapped("net", "n.namespace")} > 0
            ORDER BY n.namespace LIMIT $5
          )
          UNION ALL
          SELECT a.namespace, a.count FROM added a
          WHERE a.namespace >= range.low AND a.namespace < ${endOf("range.high")} AND a.namespace > $4
        ) part ORDER BY part.namespace LIMIT $5
      ) page
    ), ${lastSeq}, causeway.epoch()`

export const namespaces = (query: NamespaceQuery, now: number): Query<NamespacePage> => {
  const { after, limit } = query
  const ranges = KeyOrder.rangesOfNamespaces(query)
  return {
    text: namespacesText,
    values: [
      now,
      textArray(ranges.map(({ low }) => low)),
      textArray(ranges.map(({ high = "" }) => high)),
      floor(after),
      limit + 1
    ],
    decode: ([row]) => {
      const all = JSON.parse(row![0] as string) as ReadonlyArray<readonly [string, number]>
      const namespaces = all.slice(0, limit).map(([namespace, count]) => ({ namespace, count }))
      return { namespaces, lastSeq: row![1] as number, epoch: row![2] as string, more: all.length > limit }
    }
  }
}

const tenantsText = `WITH ${due}, ${changed}, moved AS MATERIALIZED (
      SELECT ${tenantOf("c.namespace")} AS tenant, sum(${comeOrGone("c.before", "c.entries")}) AS namespaces,
        sum(c.entries) AS entries
      FROM (
        SELECT changed.namespace, changed.entries, ${baseEntries("changed.namespace")} AS before FROM changed
      ) c GROUP BY 1
    ), entries AS MATERIALIZED (SELECT jsonb_object_agg(moved.tenant, moved.entries) AS map FROM moved),
    namespaces AS MATERIALIZED (SELECT jsonb_object_agg(moved.tenant, moved.namespaces) AS map FROM moved),
    added AS MATERIALIZED (
      SELECT moved.tenant, moved.namespaces, moved.entries FROM moved
      WHERE moved.namespaces > 0
        AND NOT coalesce((SELECT true FROM causeway.base_tenants b WHERE b.tenant = moved.tenant), false)
    ) SELECT (
      SELECT coalesce(json_agg(json_build_array(page.tenant, page.namespaces, page.entries) ORDER BY page.tenant), '[]')
      FROM (
        SELECT part.tenant, part.namespaces, part.entries FROM (
          (
            SELECT t.tenant, t.namespaces + ${mapped("namespaces", "t.tenant")} AS namespaces,
              t.entries + ${mapped("entries", "t.tenant")} AS entries
            FROM causeway.base_tenants t
            WHERE t.tenant >= $2 AND t.tenant < ${endOf("$3")}
              AND t.namespaces + ${mapped("namespaces", "t.tenant")} > 0
            ORDER BY t.tenant LIMIT $4
          )
          UNION ALL
          SELECT a.tenant, a.namespaces, a.entries FROM added a WHERE a.tenant >= $2 AND a.tenant < ${endOf("$3")}
        ) part ORDER BY part.tenant LIMIT $4
      ) page
    ), ${lastSeq}, causeway.epoch()`

export const tenants = (query: TenantQuery, now: number): Query<TenantPage> => {
  const { limit } = query
  const range = KeyOrder.rangeOfTenants(query)
  const { high = "", low } = range ?? { low: "" }
  return {
    text: tenantsText,
    values: [now, low, high, range === undefined ? 0 : limit + 1],
    decode: ([row]) => {
      const all = JSON.parse(row![0] as string) as ReadonlyArray<readonly [string, number, number]>
      const tenants = all.slice(0, limit).map(([tenant, namespaces, entries]) => ({ tenant, namespaces, entries }))
      return { tenants, lastSeq: row![1] as number, epoch: row![2] as string, more: all.length > limit }
    }
  }
}
