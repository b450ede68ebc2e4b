/**
 * Commits groups of writes by calls of the functions that write, one at a time.
 */
import { Array as Arr, Effect, Either, Exit } from "effect"
import { type Comparison, ComparisonSchedule } from "../../../Kv/IdempotencyShares.ts"
import { IdempotencyConflict, PreconditionFailed, type StoreUnavailable } from "../../../Kv/Store.ts"
import { type Committed, committed, type Write } from "../../../Kv/Write.ts"
import { isOfContent, type QueryError, unavailable } from "../Database/DatabaseError.ts"
import * as GroupCall from "../Database/GroupCall.ts"
import type { Pool } from "../Database/Pool.ts"
import * as WriteCalls from "./WriteCalls.ts"

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

/** Why a write was not committed. */
export type WriteError = PreconditionFailed | IdempotencyConflict | StoreUnavailable

type Writes = ReadonlyArray<Write>
type Outcomes = ReadonlyArray<WriteCalls.Outcome>
type Results = ReadonlyArray<Either.Either<Committed, WriteError>>

/** The time of the database in epoch milliseconds. For `isGivenUp` see `GroupCall`. */
export interface Turn {
  readonly now: number
  readonly isGivenUp: () => boolean
}

/** Returns the result of each write of a group, which is not empty. Callers must not overlap calls. */
export type Commit = (writes: Writes, turn: Turn) => Effect.Effect<Results, StoreUnavailable>

/** The outcome of a write, as the port returns it. */
const resultOf = (write: Write, outcome: WriteCalls.Outcome): Either.Either<Committed, WriteError> => {
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
  const bounds = ({ now }: Turn): WriteCalls.Bounds => ({
    limitBytes: idempotencyBytes,
    compares: schedule.isDue(now)
  })

  const decode = (writes: Writes, result: string, { now }: Turn): WriteCalls.Answer => {
    const answer = WriteCalls.decodeAnswer(writes, result)
    if (answer._tag === "Applied" && answer.comparison !== undefined) {
      schedule.done(now)
      onComparison(answer.comparison)
    }
    return answer
  }

  const applied = (writes: Writes, result: string): Outcomes => {
    const { base, lastSeq, lockWait, outcomes } = WriteCalls.decodeGroup(writes, result)
    onLastSeq(lastSeq, base)
    if (lockWait !== undefined) onLockWait(lockWait)
    return outcomes
  }

  /**
   * Applies writes without deletes of prefixes, together. If some of them have records, the call applies nothing. The
   * others are then applied without them. After a lost race the lock is taken first, so that there can be no other.
   */
  const apply = (writes: Writes, turn: Turn): Applying => {
    const isKeyed = writes.some(({ idempotencyKey }) => idempotencyKey !== undefined)
    const parameters = WriteCalls.encodeGroup(writes)
    const keys = isKeyed ? WriteCalls.encodeKeys(writes, bounds(turn)) : []
    return Effect.flatMap(
      call(
        isKeyed ? "commit_keyed" : "commit_group",
        (id, lockFirst) => [id, turn.now, lockFirst, ...parameters, ...keys],
        turn.isGivenUp
      ),
      (result): Applying => {
        const answer = decode(writes, result, turn)
        if (answer._tag === "Applied") return Exit.succeed(applied(writes, answer.result))
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
      ...WriteCalls.encodePrefixDelete(write.prefixDelete!, write.actor),
      ...(key === undefined ? [] : WriteCalls.encodeKey(key, bounds(turn)))
    ]
    const name = key === undefined ? "remove_entries" : "remove_keyed"
    return Effect.map(
      call(name, id => [id, turn.now, ...parameters], turn.isGivenUp),
      result => {
        const answer = decode([write], result, turn)
        if (answer._tag === "Replayed") return [answer.outcomes.get(0)!]
        const committed = WriteCalls.decodePrefixDelete(answer.result, turn.now)
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
        isOfContent(error) && part.length > 1
          ? commitEach(
              part.map(write => [write]),
              turn
            )
          : Exit.fail(unavailable(error)),
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
