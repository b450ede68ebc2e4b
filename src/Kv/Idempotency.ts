/**
 * What is remembered of a write with an idempotency key: enough to answer it again, without its values, which the
 * repeated request brings along. Every backend keeps the same text.
 */
import type { Applied, PlannedResult, Write } from "./Write.ts"

/** How long a write is remembered, in milliseconds. */
export const lifetime = 24 * 60 * 60 * 1000

/** The bytes that a remembered write counts for beside those of its text: its key, its digest, and their index. */
export const overheadBytes = 256

/** The bytes for which a write counts that is remembered with this text, whose characters are of ASCII. */
export const bytesOf = (text: string): number => overheadBytes + text.length

/** What separates the numbers of a text from the expiries of the operations. */
const separator = ";"

/**
 * The part of a text with the expiries of a write, or `""` where nothing expires. They are not in the request that
 * repeats it.
 */
export const expiriesOf = ({ operations }: Write): string => {
  const expiries = operations.map(operation => (operation.op === "set" ? operation.expiresAt : null))
  return expiries.every(expiry => expiry === null) ? "" : separator + expiries.map(expiry => expiry ?? "").join(",")
}

/**
 * What is kept of a write that was applied: the timestamp and the last `seq`, then for each operation the version of a
 * set, 0 for a delete, -1 for a delete of what was absent; or for a removal how many entries it has deleted, and 1 where
 * it has left some. The expiries follow.
 */
export const encode = (write: Write, { lastSeq, more, results, timestamp }: Applied): string => {
  const numbers =
    write.removal === undefined
      ? results.map(result => (result.op === "set" ? result.version : result.deleted ? 0 : -1))
      : [results.length, Number(more)]
  return [timestamp, lastSeq, ...numbers].join(",") + expiriesOf(write)
}

/** Reads what was kept of a write that was the same. */
export const decode = ({ operations, removal }: Write, kept: string): Applied => {
  const [numbers = "", expiries] = kept.split(separator)
  const [timestamp = 0, lastSeq = 0, ...rest] = numbers.split(",").map(Number)
  const replay = { timestamp, lastSeq, isReplay: true }
  if (removal !== undefined) {
    const [count, more] = rest
    return { ...replay, results: Array.from({ length: count ?? 0 }, () => deleted), more: more === 1 }
  }
  const results = operations.map((_, index): PlannedResult => {
    const result = rest[index] ?? 0
    return result > 0 ? { op: "set", version: result } : { op: "delete", deleted: result === 0 }
  })
  const read = expiries?.split(",").map(expiry => (expiry === "" ? null : Number(expiry)))
  return { ...replay, results, expiries: operations.map((_, index) => read?.[index] ?? null) }
}

const deleted: PlannedResult = { op: "delete", deleted: true }
