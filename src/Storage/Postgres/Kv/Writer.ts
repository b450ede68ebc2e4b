/**
 * Commits groups of writes by calls of the functions that write, one at a time: a call for a group of writes, and one
 * for each delete of a prefix; each with and without idempotency keys.
 *
 * With keys, a function looks the keys up, then does what it does without them, and stores a record of each write that
 * was applied, all in one transaction. Records are added under the lock that every writer takes, so that of two nodes
 * with the same key only one applies its write. The other finds the record when it adds its own. It then fails with
 * 40001 and is called again with `lock_first`, so that it finds the record before it applies anything.
 */
import { Array as Arr, Effect, Either, Exit } from "effect"
import * as Idempotency from "../../../Kv/Idempotency.ts"
import { type Comparison, ComparisonSchedule } from "../../../Kv/IdempotencyShares.ts"
import { IdempotencyConflict, PreconditionFailed, type StoreUnavailable } from "../../../Kv/Store.ts"
import {
  type Applied,
  type Committed,
  committed,
  type IdempotencyKey,
  type KeyReused,
  type PlannedResult,
  type Precondition,
  type PrefixDelete,
  type Refused,
  type Write
} from "../../../Kv/Write.ts"
import * as KeyOrder from "../../KeyOrder.ts"
import { isOfContent, type QueryError, unavailable } from "../Database/DatabaseError.ts"
import * as GroupCall from "../Database/GroupCall.ts"
import type { Pool } from "../Database/Pool.ts"
import { bigintArray, integerArray, type Parameter, textArray } from "../Database/Statement.ts"

type Writes = ReadonlyArray<Write>

/** The outcome of one write of a group. */
export type Outcome = { readonly _tag: "Committed"; readonly committed: Applied } | Refused | KeyReused

/** Encodes a condition. A number that is no version matches nothing. */
const versions = (given: Precondition["match"]): string | null => {
  if (given === undefined) return null
  return given === "any" ? "*" : `{${given.filter(Number.isSafeInteger).join(",")}}`
}

/** Encodes the parameters of `commit_group` after the first three. */
export const encodeGroup = (writes: Writes): ReadonlyArray<Parameter> => {
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
    textArray(namespaces),
    textArray(keys),
    integerArray(sizes),
    textArray(actors),
    integerArray(opKeys),
    textArray(values),
    bigintArray(expiries),
    isConditional ? textArray(matches) : null,
    isConditional ? textArray(noneMatches) : null
  ]
}

/** The outcomes of a group, and the last `seq` of the log before it (`base`) and after it. */
export interface GroupResult {
  readonly outcomes: ReadonlyArray<Outcome>
  readonly base: number
  readonly lastSeq: number
  /** How long the group has waited for the lock of the log, in milliseconds, if it took the lock. */
  readonly lockWait: number | undefined
}

/** Decodes the result of `commit_group` for these writes. */
export const decodeGroup = (writes: Writes, result: string): GroupResult => {
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
export const encodeKeys = (writes: Writes, { compares, limitBytes }: Bounds): ReadonlyArray<Parameter> => {
  const keyed = writes.flatMap((write, index) =>
    write.idempotencyKey === undefined ? [] : [{ write, number: index + 1, ...write.idempotencyKey }]
  )
  return [
    limitBytes,
    integerArray(keyed.map(({ number }) => number)),
    textArray(keyed.map(({ id }) => id)),
    textArray(keyed.map(({ digest }) => digest)),
    textArray(keyed.map(({ write }) => Idempotency.expiriesOf(write))),
    textArray(keyed.map(({ tenant }) => tenant)),
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
export const decodeAnswer = (writes: Writes, answer: string): Answer => {
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

/** The limit of idempotency records, and callbacks for what results have besides outcomes. */
export interface Options {
  /** Called with the last `seq` of the log after each group, and before it. */
  readonly onLastSeq: (lastSeq: number, base: number) => void
  /** Called with the milliseconds that a group has waited for the lock of the log. */
  readonly onLockWait: (millis: number) => void
  /** The limit of the bytes of idempotency records. */
  readonly idempotencyBytes: number
  /** Called with the result of each comparison of the tenants. */
  readonly onComparison: (comparison: Comparison) => void
}

export type WriteError = PreconditionFailed | IdempotencyConflict | StoreUnavailable

type Outcomes = ReadonlyArray<Outcome>
type Results = ReadonlyArray<Either.Either<Committed, WriteError>>

/** The time of the database in epoch milliseconds. For `isGivenUp` see `GroupCall`. */
export interface Turn {
  readonly now: number
  readonly isGivenUp: () => boolean
}

/** Returns the result of each write of a group, which is not empty. Callers must not overlap calls. */
export type Commit = (writes: Writes, turn: Turn) => Effect.Effect<Results, StoreUnavailable>

const resultOf = (write: Write, outcome: Outcome): Either.Either<Committed, WriteError> => {
  if (outcome._tag === "Committed") return Either.right(committed(write, outcome.committed))
  if (outcome._tag === "KeyReused") return Either.left(new IdempotencyConflict({ isInProgress: false }))
  const { currentVersion, index, isChangedBefore } = outcome
  return Either.left(new PreconditionFailed({ index, currentVersion, isChangedBefore }))
}

const isPlain = ({ prefixDelete }: Write): boolean => prefixDelete === undefined

/** The parts of a group that one call each commits, in order: a delete of a prefix is a part of its own. */
const partsOf = (writes: Writes): ReadonlyArray<Writes> =>
  Arr.isNonEmptyReadonlyArray(writes) ? Arr.groupWith(writes, (a, b) => isPlain(a) && isPlain(b)) : []

type Applying = Effect.Effect<Outcomes, QueryError | StoreUnavailable>

/** Makes the function that applies one part of a group by a call. */
const applying = (
  pool: Pick<Pool, "run" | "read">,
  lastServerTime: () => number,
  { idempotencyBytes, onComparison, onLastSeq, onLockWait }: Options
): ((part: Writes, turn: Turn) => Applying) => {
  // One for all functions: no call may overtake a call of another function whose outcome is unknown.
  const call = GroupCall.make(pool, lastServerTime)
  const schedule = new ComparisonSchedule()
  const bounds = ({ now }: Turn): Bounds => ({ limitBytes: idempotencyBytes, compares: schedule.isDue(now) })

  const decode = (writes: Writes, result: string, { now }: Turn): Answer => {
    const answer = decodeAnswer(writes, result)
    if (answer._tag === "Applied" && answer.comparison !== undefined) {
      schedule.done(now)
      onComparison(answer.comparison)
    }
    return answer
  }

  /**
   * Applies writes without deletes of prefixes, together. If some of them have records, the call applies nothing. The
   * others are then applied without them. After a lost race the lock is taken first, so that there can be no other.
   */
  const apply = (writes: Writes, turn: Turn): Applying => {
    const isKeyed = writes.some(({ idempotencyKey }) => idempotencyKey !== undefined)
    const parameters = encodeGroup(writes)
    const keys = isKeyed ? encodeKeys(writes, bounds(turn)) : []
    return Effect.flatMap(
      call(
        isKeyed ? "commit_keyed" : "commit_group",
        (id, lockFirst) => [id, turn.now, lockFirst, ...parameters, ...keys],
        turn.isGivenUp
      ),
      (result): Applying => {
        const answer = decode(writes, result, turn)
        if (answer._tag === "Applied") {
          const { base, lastSeq, lockWait, outcomes } = decodeGroup(writes, answer.result)
          onLastSeq(lastSeq, base)
          if (lockWait !== undefined) onLockWait(lockWait)
          return Exit.succeed(outcomes)
        }
        const replayed = answer.outcomes
        const others = writes.filter((_, index) => !replayed.has(index))
        return Effect.map(others.length === 0 ? Exit.succeed([]) : apply(others, turn), outcomes => {
          let next = 0
          return writes.map((_, index) => replayed.get(index) ?? outcomes[next++]!)
        })
      }
    )
  }

  /** Applies a write that deletes a prefix. */
  const remove = (write: Write, turn: Turn): Applying => {
    const key = write.idempotencyKey
    const parameters = [
      ...encodePrefixDelete(write.prefixDelete!, write.actor),
      ...(key === undefined ? [] : encodeKey(key, bounds(turn)))
    ]
    const name = key === undefined ? "remove_entries" : "remove_keyed"
    return Effect.map(
      call(name, id => [id, turn.now, ...parameters], turn.isGivenUp),
      result => {
        const answer = decode([write], result, turn)
        if (answer._tag === "Replayed") return [answer.outcomes.get(0)!]
        const committed = decodePrefixDelete(answer.result, turn.now)
        onLastSeq(committed.lastSeq, committed.lastSeq - committed.results.length)
        return [{ _tag: "Committed", committed }]
      }
    )
  }

  return (part, turn) => (isPlain(part[0]!) ? apply(part, turn) : remove(part[0]!, turn))
}

/** Makes the commit of one node. For `lastServerTime` see `GroupCall`. */
export const make = (pool: Pick<Pool, "run" | "read">, lastServerTime: () => number, options: Options): Commit => {
  const apply = applying(pool, lastServerTime, options)

  const commitPart = (part: Writes, turn: Turn): Effect.Effect<Results, StoreUnavailable> =>
    Effect.matchEffect(apply(part, turn), {
      // A write that the database refuses must not fail the others of its group.
      onFailure: error =>
        isOfContent(error) && part.length > 1 ? commitEach(part.map(Arr.of), turn) : Exit.fail(unavailable(error)),
      onSuccess: outcomes => Exit.succeed(outcomes.map((outcome, index) => resultOf(part[index]!, outcome)))
    })

  /** Commits parts, one after the other. One that fails does not fail the others. */
  const commitEach = (parts: ReadonlyArray<Writes>, turn: Turn): Effect.Effect<Results> =>
    Effect.map(
      Effect.forEach(parts, part =>
        Effect.catchAll(commitPart(part, turn), error => Exit.succeed(part.map(() => Either.left(error))))
      ),
      Arr.flatten
    )

  return (writes, turn) =>
    Effect.suspend(() => {
      const parts = partsOf(writes)
      return parts.length === 1 ? commitPart(parts[0]!, turn) : commitEach(parts, turn)
    })
}
