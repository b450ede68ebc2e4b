/**
 * Commits groups of writes.
 */
import { Effect, Either, Exit } from "effect"
import { type Comparison, ComparisonSchedule } from "../../../Kv/IdempotencyShares.ts"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import type { IdempotencyKey, PrefixDelete, Write } from "../../../Kv/Write.ts"
import { isOfContent, type QueryError, unavailable } from "../Database/DatabaseError.ts"
import * as GroupCall from "../Database/GroupCall.ts"
import type { Pool } from "../Database/Pool.ts"
import { calling, type Parameter, type Statement } from "../Database/Statement.ts"
import * as Group from "./Group.ts"
import * as IdempotencyRecords from "./IdempotencyRecords.ts"
import * as PrefixDeletes from "./PrefixDelete.ts"

const commitGroup = calling("commit_group", 12)

type CallError = QueryError | StoreUnavailable

/** Writes groups to the database. */
export interface Writer {
  /**
   * Returns the outcome of each write. `now` is the time of the database in epoch milliseconds. Callers must not
   * overlap calls. For `isGivenUp` see `GroupCall`.
   */
  readonly commit: (
    writes: ReadonlyArray<Write>,
    now: number,
    isGivenUp: () => boolean
  ) => Effect.Effect<ReadonlyArray<Either.Either<Group.Outcome, StoreUnavailable>>, StoreUnavailable>
  /** Removes commit records that no node asks for any longer. */
  readonly prune: Effect.Effect<unknown, StoreUnavailable>
}

/** The limit of idempotency records, and the callbacks of a writer. */
export interface WriterOptions {
  /** Called with the last `seq` of the log after each group. */
  readonly onLastSeq: (lastSeq: number) => void
  /** Called with the milliseconds that a group has waited for the lock of the log. */
  readonly onLockWait: (millis: number) => void
  /** The limit of the bytes of idempotency records. */
  readonly idempotencyBytes: number
  /** Called with the result of each comparison of the tenants. */
  readonly onComparison: (comparison: Comparison) => void
}

/** Makes a writer. For `lastServerTime` see `GroupCall`. */
export const make = (
  pool: Pick<Pool, "run" | "read">,
  lastServerTime: () => number,
  { onComparison, onLastSeq, onLockWait, idempotencyBytes }: WriterOptions
): Writer => {
  // One for all functions: no call may overtake a call of another function whose outcome is unknown.
  const callOne = GroupCall.make(pool, lastServerTime)
  /** Whether the callers of the current group no longer wait for it. */
  let isGivenUp = (): boolean => false
  const callGroup = (call: Statement, parametersOf: Parameters<GroupCall.GroupCall>[1]) =>
    callOne(call, parametersOf, () => isGivenUp())
  const schedule = new ComparisonSchedule()

  const bounds = (now: number): IdempotencyRecords.Bounds => ({
    limitBytes: idempotencyBytes,
    compares: schedule.isDue(now)
  })

  const decodeKeyed = (writes: ReadonlyArray<Write>, result: string, now: number): IdempotencyRecords.Answer => {
    const answer = IdempotencyRecords.decode(writes, result)
    if (answer._tag === "Applied" && answer.comparison !== undefined) {
      schedule.done(now)
      onComparison(answer.comparison)
    }
    return answer
  }

  const applied = (writes: ReadonlyArray<Write>, result: string): ReadonlyArray<Group.Outcome> => {
    const { lastSeq, lockWait, outcomes } = Group.decode(writes, result)
    onLastSeq(lastSeq)
    if (lockWait !== undefined) onLockWait(lockWait)
    return outcomes
  }

  const commitAll = (
    writes: ReadonlyArray<Write>,
    now: number
  ): Effect.Effect<ReadonlyArray<Group.Outcome>, CallError> =>
    Effect.suspend(() => {
      const parameters = Group.encode(writes)
      if (writes.some(({ idempotencyKey }) => idempotencyKey !== undefined)) {
        return commitWithKeys(writes, now, parameters)
      }
      // After a lost race the lock is taken first, so that there can be no other.
      return Effect.map(
        callGroup(commitGroup, (id, lockFirst) => [id, now, lockFirst, ...parameters]),
        result => applied(writes, result)
      )
    })

  /** If some of the writes have records, the call applies nothing. The others are then committed without them. */
  const commitWithKeys = (writes: ReadonlyArray<Write>, now: number, parameters: ReadonlyArray<Parameter>) => {
    const keys = IdempotencyRecords.encode(writes, bounds(now))
    return Effect.flatMap(
      callGroup(IdempotencyRecords.commit, (id, lockFirst) => [id, now, lockFirst, ...parameters, ...keys]),
      (result): Effect.Effect<ReadonlyArray<Group.Outcome>, CallError> => {
        const answer = decodeKeyed(writes, result, now)
        if (answer._tag === "Applied") return Exit.succeed(applied(writes, answer.result))
        const { outcomes: replayed } = answer
        const others = writes.filter((_, index) => !replayed.has(index))
        if (others.length === 0) return Exit.succeed(writes.map((_, index) => replayed.get(index)!))
        return Effect.map(commitAll(others, now), outcomes => {
          let next = 0
          return writes.map((_, index) => replayed.get(index) ?? outcomes[next++]!)
        })
      }
    )
  }

  /** A write that the database refuses must not fail the others of its group. */
  const commitEach = (writes: ReadonlyArray<Write>, now: number) =>
    Effect.forEach(writes, write =>
      Effect.either(
        Effect.mapBoth(commitAll([write], now), { onFailure: unavailable, onSuccess: outcomes => outcomes[0]! })
      )
    )

  const commitOperations = (writes: ReadonlyArray<Write>, now: number): ReturnType<Writer["commit"]> =>
    Effect.matchEffect(commitAll(writes, now), {
      onFailure: error =>
        isOfContent(error) && writes.length > 1 ? commitEach(writes, now) : Exit.fail(unavailable(error)),
      onSuccess: outcomes => Exit.succeed(outcomes.map(outcome => Either.right(outcome)))
    })

  const callOf = (prefixDelete: PrefixDelete, actor: string, key: IdempotencyKey | undefined, now: number) => {
    if (key === undefined)
      return callGroup(PrefixDeletes.call, id => [id, now, ...PrefixDeletes.encode(prefixDelete, actor)])
    const parameters = IdempotencyRecords.encodePrefixDelete(prefixDelete, actor, key, bounds(now))
    return callGroup(IdempotencyRecords.remove, id => [id, now, ...parameters])
  }

  const remove = (
    write: Write,
    prefixDelete: PrefixDelete,
    now: number
  ): Effect.Effect<Group.Outcome, StoreUnavailable> =>
    Effect.mapBoth(callOf(prefixDelete, write.actor, write.idempotencyKey, now), {
      onFailure: unavailable,
      onSuccess: result => {
        const answer = decodeKeyed([write], result, now)
        if (answer._tag === "Replayed") return answer.outcomes.get(0)!
        const committed = PrefixDeletes.decode(answer.result, now)
        onLastSeq(committed.lastSeq)
        return { _tag: "Committed", committed }
      }
    })

  /** Commits a group with deletes of prefixes. Each is a separate call, between those of the writes around it. */
  const commitInTurn = (writes: ReadonlyArray<Write>, now: number) =>
    Effect.gen(function* () {
      const outcomes: Array<Either.Either<Group.Outcome, StoreUnavailable>> = []
      for (let at = 0; at < writes.length; ) {
        const write = writes[at]!
        if (write.prefixDelete !== undefined) {
          outcomes.push(yield* Effect.either(remove(write, write.prefixDelete, now)))
          at++
          continue
        }
        const next = writes.findIndex((write, index) => index > at && write.prefixDelete !== undefined)
        const part = writes.slice(at, next === -1 ? undefined : next)
        const committed = yield* Effect.either(commitOperations(part, now))
        for (const index of part.keys()) {
          outcomes.push(Either.flatMap(committed, decided => decided[index]!))
        }
        at += part.length
      }
      return outcomes
    })

  return {
    commit: (writes, now, isGroupGivenUp) =>
      Effect.suspend(() => {
        isGivenUp = isGroupGivenUp
        return writes.some(({ prefixDelete }) => prefixDelete !== undefined)
          ? commitInTurn(writes, now)
          : commitOperations(writes, now)
      }),
    prune: Effect.repeat(
      pool.read(GroupCall.prune.statement, GroupCall.prune.values, GroupCall.prune.decode, GroupCall.commitTimeout),
      { while: mayBeMore => mayBeMore }
    )
  }
}
