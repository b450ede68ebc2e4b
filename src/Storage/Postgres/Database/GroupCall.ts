/**
 * Calls of functions that commit a group of writes: repeats what lost a race, and finds out what became of a call whose
 * answer was lost.
 */
import { Effect, Schedule } from "effect"
import { StoreUnavailable } from "../../../Kv/Store.ts"
import { randomHex } from "../../../RandomHex.ts"
import { maxGroup } from "../../GroupCommit.ts"
import { describe, isConflict, isOutcomeUnknown, isStatementLost, type QueryError } from "./DatabaseError.ts"
import type { Pool } from "./Pool.ts"
import type { Parameter, Row, Statement } from "./Statement.ts"

/** The time of the database, in epoch milliseconds. */
const now = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

/** A mark in place of the group's own: from then on the group can no longer be committed. */
const fence: Statement = {
  name: "fence_commit",
  text: `INSERT INTO causeway.commits (id) VALUES ($1) ON CONFLICT (id) DO NOTHING RETURNING ${now}`
}

const lookUp: Statement = {
  name: "look_up_commit",
  text: `SELECT ${now}, result FROM causeway.commits WHERE id = $1`
}

/**
 * Removes marks that nobody asks for any more. Those in place of a group's own stay until the last packet that could
 * bring the group has been given up by every network.
 */
export const prune: Statement = {
  name: "prune_commits",
  text: `DELETE FROM causeway.commits
    WHERE at < clock_timestamp() - CASE WHEN result IS NULL THEN interval '1 hour' ELSE interval '1 minute' END`
}

/**
 * Milliseconds after which a group is not repeated: its mark may have been removed, so that it cannot be known whether it
 * was committed. It is by the clock of the database, as a node that was paused may not have counted.
 */
const repeatable = 30_000

/**
 * Milliseconds that a group may take, unless it is a large write, after which its outcome is asked for. It is more than
 * the server allows.
 */
export const commitTimeout = 6000

/** Milliseconds that the server gives a statement of a writer. */
export const statementTimeout = 5000

/** How many times as long as the largest group a call may take: a single write may be larger. */
const scaleOf = (parameters: ReadonlyArray<Parameter>): number => {
  let bytes = 0
  for (const parameter of parameters) if (Buffer.isBuffer(parameter)) bytes += parameter.length
  return Math.max(1, bytes / maxGroup.bytes)
}

/** How often a group is tried, in all. */
const attempts = 4

/** How the outcome of a group is asked for again. */
const questions = Schedule.addDelay(Schedule.recurs(4), () => "200 millis")

const textOf = (rows: ReadonlyArray<Row>): string => String(rows[0]?.[0])

/**
 * Makes a call of a function with an id for the group, under which the function adds a mark with its result to
 * `causeway.commits`. The id is another one each time that the group is tried; `isRepeated` is true after it has lost a
 * race. The effect returns the result of a call that was committed. It fails with what the database has reported.
 *
 * Calls are made one at a time. None is made as long as the outcome of an earlier one is unknown, of whatever function,
 * so that they are committed in order. Nothing is sent once the group is given up: whoever wrote was told that it failed,
 * and may have written anew on another node, which a later attempt would overwrite.
 */
export type GroupCall = (
  call: Statement,
  parametersOf: (id: string, isRepeated: boolean) => ReadonlyArray<Parameter>,
  isGivenUp: () => boolean
) => Effect.Effect<string, QueryError | StoreUnavailable>

/** What is known of a call, at this time of the database in epoch milliseconds. */
type Outcome =
  | { readonly _tag: "Committed"; readonly result: string }
  /** It is not there: it never will be, but it may have been. */
  | { readonly _tag: "Absent"; readonly now: number }

const committed = (result: unknown): Outcome | undefined =>
  typeof result === "string" ? { _tag: "Committed", result } : undefined

/** Calls by one writer. `lastTold` is the time of the database when it last told it, in epoch milliseconds. */
export const make = (pool: Pick<Pool, "run" | "read">, lastTold: () => number): GroupCall => {
  /** The id of a call whose outcome could not be asked for. */
  let unknown: string | undefined

  /**
   * What became of a call. The mark waits for a transaction that has made its own, and makes one fail that has not yet.
   */
  const askOnce = (id: string): Effect.Effect<Outcome, StoreUnavailable> =>
    Effect.flatMap(
      pool.read(fence, [id], rows => rows[0]),
      fenced =>
        fenced !== undefined
          ? Effect.succeed<Outcome>({ _tag: "Absent", now: fenced[0] as number })
          : pool.read(
              lookUp,
              [id],
              // An earlier question may have made the mark and lost its answer. One that is gone again was old.
              ([row]) =>
                committed(row?.[1]) ?? { _tag: "Absent", now: row === undefined ? Infinity : (row[0] as number) }
            )
    )

  const ask = (id: string): Effect.Effect<Outcome, StoreUnavailable> => Effect.retry(askOnce(id), questions)

  return (call, parametersOf, isGivenUp) => {
    const attempt = (
      /** The group was not begun before. */
      earliest: number,
      number: number,
      isRepeated: boolean
    ): Effect.Effect<string, QueryError | StoreUnavailable> =>
      Effect.flatMap(randomHex(4), id => {
        if (isGivenUp()) return new StoreUnavailable({ reason: "the group was given up" })
        const parameters = parametersOf(id, isRepeated)
        const scale = scaleOf(parameters)
        const answer = pool.run(call, parameters, scale * commitTimeout, textOf, {
          serverLimit: Math.round(scale * statementTimeout),
          isGivenUp
        })
        return Effect.catchAll(answer, (error): Effect.Effect<string, QueryError | StoreUnavailable> => {
          const again = (isRepeated: boolean) =>
            number < attempts
              ? attempt(earliest, number + 1, isRepeated)
              : new StoreUnavailable({ reason: `tried ${attempts} times: ${describe(error)}` })
          if (isConflict(error)) return again(true)
          if (isStatementLost(error)) return again(isRepeated)
          if (!isOutcomeUnknown(error)) return Effect.fail(error)
          const outcomeUnknown = new StoreUnavailable({
            reason: `the outcome of a commit is unknown: ${describe(error)}`
          })
          return Effect.matchEffect(ask(id), {
            onFailure: () => {
              unknown = id
              return outcomeUnknown
            },
            onSuccess: outcome => {
              if (outcome._tag === "Committed") return Effect.succeed(outcome.result)
              return outcome.now - earliest < repeatable ? again(isRepeated) : outcomeUnknown
            }
          })
        })
      })

    return Effect.suspend(() => {
      const first = Effect.suspend(() => attempt(lastTold(), 1, false))
      if (unknown === undefined) return first
      return Effect.flatMap(askOnce(unknown), () => {
        unknown = undefined
        return first
      })
    })
  }
}
