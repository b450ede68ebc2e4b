/** The reads of the key-value store, except lists. Each is one statement, and so reads one snapshot. */

import { constVoid } from "effect/Function"
import * as Change from "../../../Kv/Change.ts"
import type { ChangePage, ChangeQuery, Due } from "../../../Kv/ChangeLog.ts"
import * as Entry from "../../../Kv/Entry.ts"
import { type Address, type EntriesRead, pageBytes } from "../../../Kv/Store.ts"
import { calling, first, type Query, textArray } from "../Database/Statement.ts"
import {
  expiryPosition,
  lastSeq,
  page,
  printedChange,
  printedEntry,
  printedKey,
  separator,
  textsOf
} from "../Schema/SqlParts.ts"

/** The server knows sizes without reading the values. */
const entryColumns = "version, updated_by, updated_at, expires_at, CASE WHEN octet_length(value) <= $4 THEN value END"

const getText = `SELECT 1, ${entryColumns} FROM causeway.entries
  WHERE namespace = $1 AND key = $2 AND (expires_at IS NULL OR expires_at > $3)`

const getAllText = `SELECT n.position, ${entryColumns}
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY n(asked_namespace, asked_key, position)
  JOIN causeway.entries ON namespace = asked_namespace AND key = asked_key
  WHERE expires_at IS NULL OR expires_at > $3`

/** An entry is absent or has expired, or its value is too large. */
export type Found = Entry.StoredEntry | "absent" | "large"

/** The entries of some addresses at `now`, in epoch milliseconds, whose values have at most `maxBytes` each. */
export const getAll = (
  addresses: ReadonlyArray<Address>,
  now: number,
  maxBytes: number
): Query<ReadonlyArray<Found>> => {
  const namespaces = addresses.map(({ namespace }) => namespace)
  const keys = addresses.map(({ key }) => key)
  const isOne = addresses.length === 1
  return {
    text: isOne ? getText : getAllText,
    values: [...(isOne ? [namespaces[0]!, keys[0]!] : [textArray(namespaces), textArray(keys)]), now, maxBytes],
    decode: rows => {
      const entries = addresses.map((): Found => "absent")
      for (const [position, ...columns] of rows) {
        const index = (position as number) - 1
        const { key, namespace } = addresses[index]!
        const isLarge = columns.at(-1) === null
        entries[index] = isLarge ? "large" : Entry.toEntry(namespace, key, columns as unknown as Entry.EntryRow)
      }
      return entries
    }
  }
}

/** The positions of addresses that have entries, and their texts. */
const printedAt = (printed: string): string =>
  `SELECT array_to_string(array_agg(position ORDER BY position), ',') AS positions,
    string_agg(json, U&'\\001e' ORDER BY position) AS texts
  FROM (
    SELECT n.position, ${printed} AS json
    FROM unnest($1::text[], $2::text[]) WITH ORDINALITY n(asked_namespace, asked_key, position)
    JOIN causeway.entries ON namespace = asked_namespace AND key = asked_key
    WHERE expires_at IS NULL OR expires_at > $3
  ) printed`

/** The values are read only if all of them are within the limit. */
const getManyText = `WITH found AS MATERIALIZED (
    SELECT octet_length(e.value)::bigint AS bytes
    FROM unnest($1::text[], $2::text[]) n(namespace, key)
    JOIN causeway.entries e ON e.namespace = n.namespace AND e.key = n.key
    WHERE e.expires_at IS NULL OR e.expires_at > $3
  ), total AS (SELECT coalesce(sum(bytes), 0) <= $4 AS fits FROM found)
  SELECT fits, ${lastSeq}, causeway.epoch(), read.positions, read.texts
  FROM total LEFT JOIN LATERAL (${printedAt(printedEntry)}) read ON fits`

/** Without the values, which are not read. */
const getManyKeysText = `SELECT true, ${lastSeq}, causeway.epoch(), read.positions, read.texts FROM (${printedAt(printedKey)}) read`

/** The entries of some addresses, or undefined if their values exceed `maxBytes`. With `keysOnly` there is no limit. */
export const getMany = (
  addresses: ReadonlyArray<Address>,
  maxBytes: number,
  keysOnly: boolean,
  now: number
): Query<EntriesRead | undefined> => ({
  text: keysOnly ? getManyKeysText : getManyText,
  values: [
    textArray(addresses.map(({ namespace }) => namespace)),
    textArray(addresses.map(({ key }) => key)),
    now,
    ...(keysOnly ? [] : [maxBytes])
  ],
  decode: ([row]) => {
    type Found = readonly [boolean, number, string, string | null, string | null]
    const [fits, lastSeq, epoch, positions, texts] = row as Found
    if (!fits) return undefined
    const entries: Array<Entry.EncodedEntry | undefined> = addresses.map(() => undefined)
    const printed = texts?.split(separator) ?? []
    const encoded = keysOnly ? Entry.encodedWithoutValue : Entry.encoded
    for (const [index, position] of positions?.split(",").entries() ?? []) {
      entries[Number(position) - 1] = encoded(printed[index]!)
    }
    return { entries, lastSeq, epoch }
  }
})

const changesWhere = (condition: string): string =>
  `SELECT page.texts, page.selected, ${lastSeq}, log.trimmed_seq, causeway.epoch() FROM causeway.log, (
    ${page(printedChange, "seq", `FROM causeway.changes WHERE ${condition}`, String(pageBytes))}
  ) page`

const allChanges = changesWhere("seq > $2")

// The condition excludes the empty tenant explicitly, so that the partial index can be used.
const tenantChanges = changesWhere("tenant = $3 AND tenant <> '' AND seq > $2")

/** The maximum number of records that a read of a namespace scans, as no index has the records of a namespace. */
const maxScanned = 2000

const partChanges = changesWhere(
  `seq > $2 AND seq <= $2::bigint + ${maxScanned} AND namespace = $3 AND starts_with(key, $4)`
)

/** Returns the statement for a query, and its parameters. */
const changesBy = ({ after, limit, namespace, prefix = "", tenant }: ChangeQuery) => {
  if (namespace === undefined) {
    return tenant === ""
      ? { text: allChanges, values: [limit, after] }
      : { text: tenantChanges, values: [limit, after, tenant] }
  }
  const isPossible = prefix.isWellFormed() && (tenant === "" || tenant === Entry.tenantOf(namespace))
  return { text: partChanges, values: [isPossible ? limit : 0, after, namespace, isPossible ? prefix : ""] }
}

/** Records after the requested position were removed: all up to `trimmedSeq`. */
export interface TrimmedBefore {
  readonly _tag: "TrimmedBefore"
  readonly trimmedSeq: number
  readonly epoch: string
}

/** A page of the log. The result is `TrimmedBefore` if records after the position were removed. */
export const changes = (query: ChangeQuery): Query<ChangePage | TrimmedBefore> => ({
  ...changesBy(query),
  decode: ([row]) => {
    const { after, limit, namespace } = query
    const [printed, selected, last, trimmedSeq, epoch] = row as readonly [string | null, number, number, number, string]
    if (after < trimmedSeq) return { _tag: "TrimmedBefore", trimmedSeq, epoch }
    const { isCut, texts } = textsOf(printed, selected)
    const changes = texts.map(Change.encoded)
    const isFull = isCut || changes.length === limit
    const end = namespace === undefined ? last : Math.min(after + maxScanned, last)
    return { changes, lastSeq: isFull ? changes.at(-1)!.seq : end, epoch, isComplete: isFull || end < last }
  }
})

/** The end of the log and the time of the database in epoch milliseconds, which a node polls. */
export const clockAndLogEnd: Query<{ readonly lastSeq: number; readonly epoch: string; readonly now: number }> = {
  text: `SELECT ${lastSeq}, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, causeway.epoch()`,
  values: [],
  decode: ([row]) => ({ lastSeq: row![0] as number, now: row![1] as number, epoch: row![2] as string })
}

/** Stores a new epoch of the log, unless another node has done so. */
export const renewEpoch = (epoch: string): Query<void> => ({
  text: "SELECT causeway.renew_epoch() WHERE causeway.epoch() = $1",
  values: [epoch],
  decode: constVoid
})

/** The last `seq`. */
export const end: Query<number> = {
  text: `SELECT ${lastSeq}`,
  values: [],
  decode: first
}

/**
 * Removes at most `limit` entries that have expired at `now`, in epoch milliseconds. Returns how many, and the last
 * `seq` if there were any.
 */
export const expire = (now: number, limit: number): Query<readonly [count: number, lastSeq: number | null]> => ({
  text: "SELECT expired, last_seq FROM causeway.expire($1, $2)",
  values: [now, limit],
  decode: ([row]) => [row![0] as number, row![1] as number | null]
})

/** Removes at most `limit` records of the log from before a time in epoch milliseconds. Returns how many. */
export const trim = (before: number, limit: number): Query<number> => calling("trim", [before, limit], first<number>)

/** The times at which work is due next, by the clock of the database. Removed records are not visited. */
export const due: Query<Due> = {
  text: `SELECT
    (SELECT expires_at FROM causeway.entries WHERE expires_at > ${expiryPosition} ORDER BY expires_at LIMIT 1),
    (SELECT timestamp FROM causeway.changes
      WHERE seq > (SELECT trimmed_seq FROM causeway.log) AND seq < (SELECT max(seq) FROM causeway.changes)
      ORDER BY seq LIMIT 1)`,
  values: [],
  decode: ([row]) => ({ expiresAt: row![0] as number | null, oldestAt: row![1] as number | null })
}

/** A text that changes with each trim and with the identity of the log. */
export const history: Query<string> = {
  text: "SELECT log.history || ' ' || causeway.epoch() FROM causeway.log",
  values: [],
  decode: first
}
