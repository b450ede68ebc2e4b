/**
 * A group of writes as the parameters of `causeway.commit_group`, and the decoding of its result.
 */
import type { Applied, KeyReused, PlannedResult, Precondition, Refused, Write } from "../../../Kv/Write.ts"
import * as Encoding from "../Database/Encoding.ts"
import type { Parameter } from "../Database/Statement.ts"

/** The outcome of one write of a group. */
export type Outcome = { readonly _tag: "Committed"; readonly committed: Applied } | Refused | KeyReused

/** Encodes a condition. A number that is no version matches nothing. */
const versions = (given: Precondition["match"]): string | null => {
  if (given === undefined) return null
  return given === "any" ? "*" : `{${given.filter(Number.isSafeInteger).join(",")}}`
}

/** Encodes the parameters of the function after the first three. */
export const encode = (writes: ReadonlyArray<Write>): ReadonlyArray<Parameter> => {
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

/** Decodes the result of the function for these writes. */
export const decode = (writes: ReadonlyArray<Write>, result: string): Outcomes => {
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
