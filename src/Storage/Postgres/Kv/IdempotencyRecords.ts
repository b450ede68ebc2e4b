/**
 * Calls of the functions that write with idempotency keys. A function looks the keys up, then does what `commit_group`
 * or `remove_entries` does, and stores a record of each write that was applied, all in one transaction.
 *
 * Records are added under the lock that every writer takes, so that of two nodes with the same key only one applies its
 * write. The other finds the record when it adds its own. It then fails with 40001 and is called again with
 * `lock_first`, so that it finds the record before it applies anything.
 */
import * as Idempotency from "../../../Kv/Idempotency.ts"
import type { Comparison } from "../../../Kv/IdempotencyShares.ts"
import type { IdempotencyKey, PrefixDelete, Write } from "../../../Kv/Write.ts"
import * as Encoding from "../Database/Encoding.ts"
import { calling, type Parameter } from "../Database/Statement.ts"
import type { Outcome } from "./Group.ts"
import * as PrefixDeletes from "./PrefixDelete.ts"

/** Calls the database function that commits a group with idempotency keys. */
export const commit = calling("commit_keyed", 19)

/** Calls the database function that deletes by prefix with an idempotency key. */
export const remove = calling("remove_keyed", 12)

/** The limit of the records, and whether tenants are compared regardless of how much is added. */
export interface Bounds {
  readonly limitBytes: number
  readonly compares: boolean
}

/** The parameters of `commit_keyed` after those of `commit_group`. */
export const encode = (writes: ReadonlyArray<Write>, { compares, limitBytes }: Bounds): ReadonlyArray<Parameter> => {
  const numbers: Array<number> = []
  const tenants: Array<string> = []
  const ids: Array<string> = []
  const digests: Array<string> = []
  const expiries: Array<string> = []
  for (const [index, write] of writes.entries()) {
    const key = write.idempotencyKey
    if (key === undefined) continue
    numbers.push(index + 1)
    tenants.push(key.tenant)
    ids.push(key.id)
    digests.push(key.digest)
    expiries.push(Idempotency.expiriesOf(write))
  }
  return [
    limitBytes,
    Encoding.integers(numbers),
    Encoding.texts(ids),
    Encoding.texts(digests),
    Encoding.texts(expiries),
    Encoding.texts(tenants),
    compares
  ]
}

/** The parameters of `remove_keyed` after the first two. */
export const encodePrefixDelete = (
  prefixDelete: PrefixDelete,
  actor: string,
  { digest, id, tenant }: IdempotencyKey,
  { compares, limitBytes }: Bounds
): ReadonlyArray<Parameter> => [...PrefixDeletes.encode(prefixDelete, actor), limitBytes, id, digest, tenant, compares]

/** The result of a function. */
export type Answer =
  /** The outcomes of the writes that have records, by their index. Nothing was applied. */
  | { readonly _tag: "Replayed"; readonly outcomes: ReadonlyMap<number, Outcome> }
  /** The result of `commit_group` or `remove_entries`, and that of the comparison if tenants were compared. */
  | { readonly _tag: "Applied"; readonly result: string; readonly comparison: Comparison | undefined }

/** Decodes the result of either function. */
export const decode = (writes: ReadonlyArray<Write>, answer: string): Answer => {
  if (!answer.startsWith("[")) {
    const [result = "", numbers] = answer.split(";")
    const [bytes = 0, forgotten = 0] = numbers?.split(",").map(Number) ?? []
    return { _tag: "Applied", result, comparison: numbers === undefined ? undefined : { bytes, forgotten } }
  }
  const rows = JSON.parse(answer) as ReadonlyArray<readonly [write: number, isSame: boolean, kept: string]>
  const outcomes = new Map(
    rows.map(([number, isSame, kept]): [number, Outcome] => [
      number - 1,
      isSame ? { _tag: "Committed", committed: Idempotency.decode(writes[number - 1]!, kept) } : { _tag: "KeyReused" }
    ])
  )
  return { _tag: "Replayed", outcomes }
}
