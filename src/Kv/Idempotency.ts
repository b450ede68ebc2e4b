/**
 * The stored result of a write with an idempotency key. It suffices to answer the write again. It has no values, since
 * the repeated request contains them. Every backend stores the same text.
 */
import type { Applied, PlannedResult, Write } from "./Write.ts"

/** How long a result is stored, in milliseconds. */
export const lifetime = 24 * 60 * 60 * 1000

/** The bytes that a record counts for in addition to its text: its key, its digest, and their index. */
export const overheadBytes = 256

/** The bytes that a record with this text counts for. The text is ASCII. */
export const bytesOf = (text: string): number => overheadBytes + text.length

/** Separates the numbers of a text from the expiries of the operations. */
const separator = ";"

/**
 * The part of a text with the expiries of a write, or `""` if nothing expires. A repeated request computes other
 * expiries.
 */
export const expiriesOf = ({ operations }: Write): string => {
  const expiries = operations.map(operation => (operation.op === "set" ? operation.expiresAt : null))
  return expiries.every(expiry => expiry === null) ? "" : separator + expiries.map(expiry => expiry ?? "").join(",")
}

/**
 * Encodes the result of a write: the timestamp and the last `seq`. Then for each operation the version of a set, 0 for
 * a delete, or -1 for a delete of an absent entry; or for a delete of a prefix the number of deleted entries, and 1 if some are
 * left. The expiries follow.
 */
export const encode = (write: Write, { lastSeq, more, results, timestamp }: Applied): string => {
  const numbers =
    write.prefixDelete === undefined
      ? results.map(result => (result.op === "set" ? result.version : result.deleted ? 0 : -1))
      : [results.length, Number(more)]
  return [timestamp, lastSeq, ...numbers].join(",") + expiriesOf(write)
}

/** Decodes the result of a write. `write` is the repeated one. */
export const decode = ({ operations, prefixDelete }: Write, kept: string): Applied => {
  const [numbers = "", expiries] = kept.split(separator)
  const [timestamp = 0, lastSeq = 0, ...rest] = numbers.split(",").map(Number)
  const replay = { timestamp, lastSeq, isReplay: true }
  if (prefixDelete !== undefined) {
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
