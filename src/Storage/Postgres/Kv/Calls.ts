/**
 * Calls of the functions that write, one at a time: a group of writes, or the delete of a prefix.
 */
import { Effect, Exit } from "effect"
import { type Comparison, ComparisonSchedule } from "../../../Kv/IdempotencyShares.ts"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import type { PrefixDelete, Write } from "../../../Kv/Write.ts"
import type { QueryError } from "../Database/DatabaseError.ts"
import * as GroupCall from "../Database/GroupCall.ts"
import type { Pool } from "../Database/Pool.ts"
import { calling, type Parameter } from "../Database/Statement.ts"
import * as Group from "./Group.ts"
import * as IdempotencyRecords from "./IdempotencyRecords.ts"
import * as PrefixDeletes from "./PrefixDelete.ts"

const commitGroup = calling("commit_group", 12)

/** Why a call has failed. */
export type CallError = QueryError | StoreUnavailable

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

/** The group that a call belongs to. */
export interface Turn {
  /** The time of the database in epoch milliseconds. */
  readonly now: number
  /** See `GroupCall`. */
  readonly isGivenUp: () => boolean
}

/** Calls of one node, which must not overlap. */
export interface Calls {
  /** Applies writes without deletes of prefixes, together. Returns the outcome of each. */
  readonly apply: (writes: ReadonlyArray<Write>, turn: Turn) => Effect.Effect<ReadonlyArray<Group.Outcome>, CallError>
  /** Applies a write that deletes a prefix. */
  readonly remove: (write: Write, prefixDelete: PrefixDelete, turn: Turn) => Effect.Effect<Group.Outcome, CallError>
}

/** The outcomes of writes, some of which were replayed, by their index. `others` has those of the others, in order. */
const merge = (
  writes: ReadonlyArray<Write>,
  replayed: ReadonlyMap<number, Group.Outcome>,
  others: ReadonlyArray<Group.Outcome>
): ReadonlyArray<Group.Outcome> => {
  let next = 0
  return writes.map((_, index) => replayed.get(index) ?? others[next++]!)
}

/** Makes the calls on a pool. For `lastServerTime` see `GroupCall`. */
export const make = (
  pool: Pick<Pool, "run" | "read">,
  lastServerTime: () => number,
  { idempotencyBytes, onComparison, onLastSeq, onLockWait }: Options
): Calls => {
  // One for all functions: no call may overtake a call of another function whose outcome is unknown.
  const call = GroupCall.make(pool, lastServerTime)
  const schedule = new ComparisonSchedule()

  const bounds = ({ now }: Turn): IdempotencyRecords.Bounds => ({
    limitBytes: idempotencyBytes,
    compares: schedule.isDue(now)
  })

  const decodeKeyed = (writes: ReadonlyArray<Write>, result: string, { now }: Turn): IdempotencyRecords.Answer => {
    const answer = IdempotencyRecords.decode(writes, result)
    if (answer._tag === "Applied" && answer.comparison !== undefined) {
      schedule.done(now)
      onComparison(answer.comparison)
    }
    return answer
  }

  const applied = (writes: ReadonlyArray<Write>, result: string): ReadonlyArray<Group.Outcome> => {
    const { base, lastSeq, lockWait, outcomes } = Group.decode(writes, result)
    onLastSeq(lastSeq, base)
    if (lockWait !== undefined) onLockWait(lockWait)
    return outcomes
  }

  const apply: Calls["apply"] = (writes, turn) =>
    Effect.suspend(() => {
      const parameters = Group.encode(writes)
      if (writes.some(({ idempotencyKey }) => idempotencyKey !== undefined)) {
        return applyKeyed(writes, turn, parameters)
      }
      // After a lost race the lock is taken first, so that there can be no other.
      return Effect.map(
        call(commitGroup, (id, lockFirst) => [id, turn.now, lockFirst, ...parameters], turn.isGivenUp),
        result => applied(writes, result)
      )
    })

  /** If some of the writes have records, the call applies nothing. The others are then applied without them. */
  const applyKeyed = (writes: ReadonlyArray<Write>, turn: Turn, parameters: ReadonlyArray<Parameter>) => {
    const keys = IdempotencyRecords.encode(writes, bounds(turn))
    return Effect.flatMap(
      call(
        IdempotencyRecords.commit,
        (id, lockFirst) => [id, turn.now, lockFirst, ...parameters, ...keys],
        turn.isGivenUp
      ),
      (result): Effect.Effect<ReadonlyArray<Group.Outcome>, CallError> => {
        const answer = decodeKeyed(writes, result, turn)
        if (answer._tag === "Applied") return Exit.succeed(applied(writes, answer.result))
        const { outcomes: replayed } = answer
        const others = writes.filter((_, index) => !replayed.has(index))
        if (others.length === 0) return Exit.succeed(merge(writes, replayed, []))
        return Effect.map(apply(others, turn), outcomes => merge(writes, replayed, outcomes))
      }
    )
  }

  const callRemove = ({ actor, idempotencyKey }: Write, prefixDelete: PrefixDelete, turn: Turn) => {
    const { isGivenUp, now } = turn
    if (idempotencyKey === undefined) {
      return call(PrefixDeletes.call, id => [id, now, ...PrefixDeletes.encode(prefixDelete, actor)], isGivenUp)
    }
    const parameters = IdempotencyRecords.encodePrefixDelete(prefixDelete, actor, idempotencyKey, bounds(turn))
    return call(IdempotencyRecords.remove, id => [id, now, ...parameters], isGivenUp)
  }

  return {
    apply,
    remove: (write, prefixDelete, turn) =>
      Effect.map(callRemove(write, prefixDelete, turn), result => {
        const answer = decodeKeyed([write], result, turn)
        if (answer._tag === "Replayed") return answer.outcomes.get(0)!
        const committed = PrefixDeletes.decode(answer.result, turn.now)
        onLastSeq(committed.lastSeq, committed.lastSeq - committed.results.length)
        return { _tag: "Committed", committed }
      })
  }
}
