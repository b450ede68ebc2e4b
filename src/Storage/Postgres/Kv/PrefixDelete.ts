/**
 * Calls of `causeway.remove_entries`, which deletes the first entries of a prefix.
 */
import type { Applied, PrefixDelete } from "../../../Kv/Write.ts"
import * as KeyOrder from "../../KeyOrder.ts"
import { calling, type Parameter } from "../Database/Statement.ts"

/** Calls the database function that deletes entries by prefix. */
export const call = calling("remove_entries", 7)

/** Encodes the parameters of the function after the first two. */
export const encode = ({ limit, namespace, prefix }: PrefixDelete, actor: string): ReadonlyArray<Parameter> => {
  const range = KeyOrder.rangeOf({ prefix })
  return [namespace, range?.low ?? "", range?.high ?? null, range === undefined ? 0 : limit, actor]
}

/** Decodes the result of the function, called at `now` in epoch milliseconds. */
export const decode = (result: string, now: number): Applied => {
  const [more, ...rest] = result.split(",").map(Number)
  if (rest.length === 1) return { results: [], timestamp: now, lastSeq: rest[0]!, more: false }
  const [timestamp = now, base = 0, , records = 0] = rest
  const results = Array.from({ length: records }, () => ({ op: "delete", deleted: true }) as const)
  return { results, timestamp, lastSeq: base + records, more: more === 1 }
}
