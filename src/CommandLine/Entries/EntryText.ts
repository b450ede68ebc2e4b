/** Entries and changes as text for people. */

import { textOf } from "../../base/Json/ExactJson.ts"
import type { Change, Entry, EntryKey } from "../../Client/Model.ts"
import { type Column, list, truncate } from "../Terminal/Table.ts"
import { cleanJson, cleanName, type Paint } from "../Terminal/Text.ts"

/** A time in UTC, to the second. */
export const time = (millis: number): string =>
  Number.isFinite(millis) && Math.abs(millis) <= 8.64e15
    ? new Date(millis)
        .toISOString()
        .replace("T", " ")
        .replace(/\.\d+Z$/, "Z")
    : String(millis)

const expiry = (expiresAt: number | null): string => (expiresAt === null ? "never" : time(expiresAt))

/** The columns of a list of keys. */
export const keyColumns: ReadonlyArray<Column> = [
  { title: "KEY", shrinks: true },
  { title: "VERSION", align: "right" },
  { title: "UPDATED" },
  { title: "BY", shrinks: true },
  { title: "EXPIRES" }
]

/** The columns of a list. */
export const columns: ReadonlyArray<Column> = [...keyColumns, { title: "VALUE", shrinks: true }]

/** The maximum number of characters of a value in a table. */
const maxInCell = 200

/** The cells of a key in a list. */
export const keyRow = (entry: EntryKey): ReadonlyArray<string> => [
  entry.key,
  String(entry.version),
  time(entry.updatedAt),
  entry.updatedBy,
  expiry(entry.expiresAt)
]

/** The cells of an entry in a list. */
export const row = (entry: Entry): ReadonlyArray<string> => [
  ...keyRow(entry),
  cleanJson(textOf(entry.value).slice(0, maxInCell))
]

/** One entry, with a line for each member. */
export const entry = (stored: Entry): string =>
  list([
    ["namespace", cleanName(stored.namespace)],
    ["key", cleanName(stored.key)],
    ["version", String(stored.version)],
    ["updated", `${time(stored.updatedAt)} by ${cleanName(stored.updatedBy)}`],
    ["expires", expiry(stored.expiresAt)],
    ["value", cleanJson(textOf(stored.value))]
  ])

/** A change as one line, without a line break. */
export const change = (record: Change, cells: number, { cyan, dim, red }: Paint): string => {
  const { actor, key, namespace, op, seq, timestamp, value, version } = record
  const what = op === "set" ? cleanJson(textOf(value).slice(0, maxInCell)) : ""
  const text = `${time(timestamp)}  ${seq}  ${op}  ${cleanName(namespace)}  ${cleanName(key)}  v${version}  ${cleanName(actor)}  ${cleanName(what)}`
  const shown = truncate(text.trimEnd(), cells)
  if (op === "set") return cyan(shown)
  return actor === "expiry" ? dim(shown) : red(shown)
}
