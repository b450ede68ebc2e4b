/**
 * Commits groups of writes.
 */
import { Effect, Either, Exit } from "effect"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import type { PrefixDelete, Write } from "../../../Kv/Write.ts"
import { isOfContent, unavailable } from "../Database/DatabaseError.ts"
import * as GroupCall from "../Database/GroupCall.ts"
import type { Pool } from "../Database/Pool.ts"
import * as Calls from "./Calls.ts"
import type { Outcome } from "./Group.ts"

/** The outcome of each write of a group. */
type Outcomes = ReadonlyArray<Either.Either<Outcome, StoreUnavailable>>

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
  ) => Effect.Effect<Outcomes, StoreUnavailable>
  /** Removes commit records that no node asks for any longer. */
  readonly prune: Effect.Effect<unknown, StoreUnavailable>
}

/** A part of a group that one call commits: writes, or a delete of a prefix. */
type Part =
  | { readonly _tag: "Writes"; readonly writes: ReadonlyArray<Write> }
  | { readonly _tag: "PrefixDelete"; readonly write: Write; readonly prefixDelete: PrefixDelete }

/** The parts of a group, in its order. */
const partsOf = (writes: ReadonlyArray<Write>): ReadonlyArray<Part> => {
  const parts: Array<Part> = []
  let run: Array<Write> | undefined
  for (const write of writes) {
    const { prefixDelete } = write
    if (prefixDelete !== undefined) {
      run = undefined
      parts.push({ _tag: "PrefixDelete", write, prefixDelete })
    } else if (run !== undefined) run.push(write)
    else {
      run = [write]
      parts.push({ _tag: "Writes", writes: run })
    }
  }
  return parts
}

/** Makes a writer. For `lastServerTime` see `GroupCall`. */
export const make = (
  pool: Pick<Pool, "run" | "read">,
  lastServerTime: () => number,
  options: Calls.Options
): Writer => {
  const calls = Calls.make(pool, lastServerTime, options)

  /** A write that the database refuses must not fail the others of its group. */
  const commitEach = (writes: ReadonlyArray<Write>, turn: Calls.Turn): Effect.Effect<Outcomes> =>
    Effect.forEach(writes, write =>
      Effect.either(
        Effect.mapBoth(calls.apply([write], turn), { onFailure: unavailable, onSuccess: outcomes => outcomes[0]! })
      )
    )

  const commitWrites = (writes: ReadonlyArray<Write>, turn: Calls.Turn): Effect.Effect<Outcomes, StoreUnavailable> =>
    Effect.matchEffect(calls.apply(writes, turn), {
      onFailure: error =>
        isOfContent(error) && writes.length > 1 ? commitEach(writes, turn) : Exit.fail(unavailable(error)),
      onSuccess: outcomes => Exit.succeed(outcomes.map(outcome => Either.right(outcome)))
    })

  const commitPart = (part: Part, turn: Calls.Turn): Effect.Effect<Outcomes> => {
    if (part._tag === "PrefixDelete") {
      const removed = Effect.mapError(calls.remove(part.write, part.prefixDelete, turn), unavailable)
      return Effect.map(Effect.either(removed), outcome => [outcome])
    }
    const { writes } = part
    return Effect.catchAll(commitWrites(writes, turn), error => Effect.succeed(writes.map(() => Either.left(error))))
  }

  return {
    commit: (writes, now, isGivenUp) =>
      Effect.suspend(() => {
        const turn = { now, isGivenUp }
        return writes.some(({ prefixDelete }) => prefixDelete !== undefined)
          ? Effect.map(
              Effect.forEach(partsOf(writes), part => commitPart(part, turn)),
              parts => parts.flat()
            )
          : commitWrites(writes, turn)
      }),
    prune: Effect.repeat(
      pool.read(GroupCall.prune.statement, GroupCall.prune.values, GroupCall.prune.decode, GroupCall.commitTimeout),
      { while: mayBeMore => mayBeMore }
    )
  }
}
