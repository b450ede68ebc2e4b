/**
 * Reads of entries, as both databases make them.
 */
import type { JsonText } from "../base/Json/JsonText.ts"
import type { StoredEntry } from "../Kv/Entry.ts"
import type { WholeListQuery } from "../Kv/Store.ts"

/** The columns of one entry whose namespace and key are known. */
export type EntryRow = readonly [
  version: number,
  updatedBy: string,
  updatedAt: number,
  expiresAt: number | null,
  value: JsonText
]

/** The entry of a row. */
export const toEntry = (namespace: string, key: string, row: EntryRow): StoredEntry => ({
  namespace,
  key,
  value: row[4],
  version: row[0],
  updatedBy: row[1],
  updatedAt: row[2],
  expiresAt: row[3]
})

/** Entries of a selection that are visible at `now` (epoch milliseconds) and come after a key. */
export interface EntryQuery extends WholeListQuery {
  readonly after: string
  readonly limit: number
  readonly now: number
  /** The page ends after the value with which it reaches this many bytes. */
  readonly size?: number
}
