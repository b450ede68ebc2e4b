/**
 * The parameters of the functions that write, and the decoding of their results: of a group of writes, and of a delete
 * of a prefix; each with and without idempotency keys.
 *
 * With keys, a function looks the keys up, then does what it does without them, and stores a record of each write that
 * was applied, all in one transaction. Records are added under the lock that every writer takes, so that of two nodes
 * with the same key only one applies its write. The other finds the record when it adds its own. It then fails with
 * 40001 and is called again with `lock_first`, so that it finds the record before it applies anything.
 */
import * as Idempotency from "../../../Kv/Idempotency.ts"
import type { Comparison } from "../../../Kv/IdempotencyShares.ts"
import type {
  Applied,
  IdempotencyKey,
  KeyReused,
  PlannedResult,
  Precondition,
  PrefixDelete,
  Refused,
  Write
} from "../../../Kv/Write.ts"
import * as KeyOrder from "../../KeyOrder.ts"
import * as Encoding from "../Database/Encoding.ts"
import type { Parameter } from "../Database/Statement.ts"

/** The outcome of one write of a group. */
export type Outcome = { readonly _tag: "Committed"; readonly committed: Applied } | Refused | KeyReused

/** Encodes a condition. A number that is no version matches nothing. */
const versions = (given: Precondition["match"]): string | null => {
  if (given === undefined) return null
  return given === "any" ? "*" : `{${given.filter(Number.isSafeInteger).join(",")}}`
}

/** Encodes the parameters of `commit_group` after the first three. */
export const encodeGroup = (writes: ReadonlyArray<Write>): ReadonlyArray<Parameter> => {
  const numbers = new Map<string, number>()
  const namespaces: Array<string> = []
  const keys: Array<string> = []
  const sizes: Array<number> = []
  const actors: Array<string> = []
  const opKeys: Array<number> = []
  const values: Array<string | null> = []
  const expiries: Array<number | null> = []
  const matches: Array<string | null> = []
  const noneMatches: Array<string | null> = []
  let isConditional = false
  for (const { actor, operations } of writes) {
    sizes.push(operations.length)
    actors.push(actor)
    for (const operation of operations) {
      const { key, namespace, precondition } = operation
      // Names contain no U+0000, so that it separates the two.
      const id = `${namespace}\u0000${key}`
      let number = numbers.get(id)
      if (number === undefined) {
        number = namespaces.push(namespace)
        keys.push(key)
        numbers.set(id, number)
      }
      opKeys.push(number)
      values.push(operation.op === "set" ? operation.value : null)
      expiries.push(operation.op === "set" ? operation.expiresAt : null)
      matches.push(versions(precondition?.match))
      noneMatches.push(versions(precondition?.noneMatch))
      if (precondition !== undefined) isConditional = true
    }
  }
  return [
    Encoding.texts(namespaces),
    Encoding.texts(keys),
    Encoding.integers(sizes),
    Encoding.texts(actors),
    Encoding.integers(opKeys),
    Encoding.texts(values),
    Encoding.bigints(expiries),
    isConditional ? Encoding.texts(matches) : null,
    isConditional ? Encoding.texts(noneMatches) : null
  ]
}

/** The outcomes of a group, and the last `seq` of the log before it (`base`) and after it. */
export interface Outcomes {
  readonly outcomes: ReadonlyArray<Outcome>
  readonly base: number
  readonly lastSeq: number
  /** How long the group has waited for the lock of the log, in milliseconds, if it took the lock. */
  readonly lockWait: number | undefined
}

/** Decodes the result of `commit_group` for these writes. */
export const decodeGroup = (writes: ReadonlyArray<Write>, result: string): Outcomes => {
  const numbers = result.split(",")
  let at = 0
  const next = (): number => Number(numbers[at++])
  const timestamp = next()
  const base = next()
  let last = base
  const outcomes = writes.map(({ operations }): Outcome => {
    if (next() === 1) {
      const index = next()
      const version = next()
      return { _tag: "Refused", index, currentVersion: version < 0 ? null : version, isChangedBefore: next() === 1 }
    }
    last = base + next()
    const results = operations.map((): PlannedResult => {
      const result = next()
      return result > 0 ? { op: "set", version: result } : { op: "delete", deleted: result === 0 }
    })
    return { _tag: "Committed", committed: { results, timestamp, lastSeq: last } }
  })
  const lockWait = at < numbers.length ? next() : -1
  return { outcomes, base, lastSeq: last, lockWait: lockWait < 0 ? undefined : lockWait / 1000 }
}

/** Encodes the parameters of `remove_entries` after the first two. */
export const encodePrefixDelete = (
  { limit, namespace, prefix }: PrefixDelete,
  actor: string
): ReadonlyArray<Parameter> => {
  const range = KeyOrder.rangeOf({ prefix })
  return [namespace, range?.low ?? "", range?.high ?? null, range === undefined ? 0 : limit, actor]
}

/** Decodes the result of `remove_entries`, called at `now` in epoch milliseconds. */
export const decodePrefixDelete = (result: string, now: number): Applied => {
  const [more, ...rest] = result.split(",").map(Number)
  if (rest.length === 1) return { results: [], timestamp: now, lastSeq: rest[0]!, more: false }
  const [timestamp = now, base = 0, , records = 0] = rest
  const results = Array.from({ length: records }, () => ({ op: "delete", deleted: true }) as const)
  return { results, timestamp, lastSeq: base + records, more: more === 1 }
}

/** The limit of the records, and whether tenants are compared regardless of how much is added. */
export interface Bounds {
  readonly limitBytes: number
  readonly compares: boolean
}

/** The parameters of `commit_keyed` after those of `commit_group`. */
export const encodeKeys = (
  writes: ReadonlyArray<Write>,
  { compares, limitBytes }: Bounds
): ReadonlyArray<Parameter> => {
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

/** The parameters of `remove_keyed` after those of `remove_entries`. */
export const encodeKey = (
  { digest, id, tenant }: IdempotencyKey,
  { compares, limitBytes }: Bounds
): ReadonlyArray<Parameter> => [limitBytes, id, digest, tenant, compares]

/** The result of a function with idempotency keys. */
export type Answer =
  /** The outcomes of the writes that have records, by their index. Nothing was applied. */
  | { readonly _tag: "Replayed"; readonly outcomes: ReadonlyMap<number, Outcome> }
  /** The result of `commit_group` or `remove_entries`, and that of the comparison if tenants were compared. */
  | { readonly _tag: "Applied"; readonly result: string; readonly comparison: Comparison | undefined }

/** Decodes the result of either function, with or without keys. */
export const decodeAnswer = (writes: ReadonlyArray<Write>, answer: string): Answer => {
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
