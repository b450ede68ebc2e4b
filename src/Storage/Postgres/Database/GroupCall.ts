/**
 * Calls of functions that commit a group of writes. It repeats calls that lost a race, and finds out the outcome of a
 * call whose answer was lost.
 */
import { Effect, Schedule } from "effect"
import { randomHex } from "../../../base/RandomHex.ts"
import { StoreUnavailable } from "../../../Kv/Store.ts"
import { maxGroup } from "../../Commit/GroupCommit.ts"
import { describe, isConflict, isOutcomeUnknown, isStatementLost, type QueryError } from "./DatabaseError.ts"
import type { Pool } from "./Pool.ts"
import { calling, first, type Parameter, type Query } from "./Statement.ts"

/** SQL for the time of the database, in epoch milliseconds. */
const now = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

/** The known outcome of a call, at a time of the database in epoch milliseconds. */
type Outcome =
  | { readonly _tag: "Committed"; readonly result: string }
  /** It has no commit record and never will have one, but may have had one. */
  | { readonly _tag: "Absent"; readonly now: number }

/**
 * Adds a fence: a commit record under the id of the group. From then on the group cannot be committed. There is no
 * outcome if the id has a record.
 */
const fence = (id: string): Query<Outcome | undefined> => ({
  text: `INSERT INTO causeway.commits (id) VALUES ($1) ON CONFLICT (id) DO NOTHING RETURNING ${now}`,
  values: [id],
  decode: ([row]) => (row === undefined ? undefined : { _tag: "Absent", now: row[0] as number })
})

const lookUp = (id: string): Query<Outcome> => ({
  text: `SELECT ${now}, result FROM causeway.commits WHERE id = $1`,
  values: [id],
  decode: ([row]) => {
    // A record that is absent now was old.
    if (row === undefined) return { _tag: "Absent", now: Infinity }
    const [now, result] = row as readonly [number, string | null]
    // An earlier query may have made the fence and lost its answer.
    return result === null ? { _tag: "Absent", now } : { _tag: "Committed", result }
  }
})

/**
 * The time after which a group is not repeated, in milliseconds. Its commit record may have been removed, so that its
 * outcome cannot be known. The clock of the database measures it, as the clock of a paused node may have stood still.
 */
const maxRepeatMillis = 30_000

/**
 * How long a group may take before the node asks for its outcome, in milliseconds; a large write may take longer. It is
 * more than the server allows.
 */
export const commitTimeout = 6000

/** The `statement_timeout` of a writer, in milliseconds. */
export const statementTimeout = 5000

/** The factor by which a call may take longer than the largest group: a single write may be larger. */
const scaleOf = (parameters: ReadonlyArray<Parameter>): number => {
  let bytes = 0
  for (const parameter of parameters) {
    if (Buffer.isBuffer(parameter) || typeof parameter === "string") bytes += parameter.length
  }
  return Math.max(1, bytes / maxGroup.bytes)
}

/** The maximum number of attempts for a group. */
const attempts = 4

/** The schedule of further queries for the outcome of a group. */
const questions = Schedule.addDelay(Schedule.recurs(4), () => "200 millis")

/**
 * Calls the function of this name with an id for the group, under which the function adds a commit record with its result to
 * `causeway.commits`. Each attempt has another id; `isRepeated` is true after an attempt has lost a race. The effect
 * returns the result of a call that was committed. It fails with the error of the database.
 *
 * Callers must not overlap calls. No call is sent while the outcome of an earlier one, of any function, is unknown, so
 * that calls are committed in order. Nothing is sent after `isGivenUp` returns true: the clients were answered that the
 * write has failed, and may have repeated it on another node. A later attempt would overwrite that.
 */
export type GroupCall = (
  name: string,
  parametersOf: (id: string, isRepeated: boolean) => ReadonlyArray<Parameter>,
  isGivenUp: () => boolean
) => Effect.Effect<string, QueryError | StoreUnavailable>

/** Calls by one writer. `lastServerTime` returns the server's time in its latest answer, in epoch milliseconds. */
export const make = (pool: Pick<Pool, "run" | "read">, lastServerTime: () => number): GroupCall => {
  /** The id of a call whose outcome could not be read. */
  let unknown: string | undefined

  /**
   * Returns the outcome of a call. The fence waits for a transaction that has added its record, and makes a transaction
   * fail that has not yet done so.
   */
  const askOnce = (id: string): Effect.Effect<Outcome, StoreUnavailable> =>
    Effect.flatMap(pool.read(fence(id)), fenced =>
      fenced === undefined ? pool.read(lookUp(id)) : Effect.succeed(fenced)
    )

  const ask = (id: string): Effect.Effect<Outcome, StoreUnavailable> => Effect.retry(askOnce(id), questions)

  return (name, parametersOf, isGivenUp) => {
    const attempt = (
      /** A time of the database before the group was first sent. */
      earliest: number,
      number: number,
      isRepeated: boolean
    ): Effect.Effect<string, QueryError | StoreUnavailable> =>
      Effect.flatMap(randomHex(4), id => {
        if (isGivenUp()) return new StoreUnavailable({ reason: "no caller waits for the group" })
        const parameters = parametersOf(id, isRepeated)
        const scale = scaleOf(parameters)
        const answer = pool.run(calling(name, parameters, first<string>), scale * commitTimeout, {
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
              return outcome.now - earliest < maxRepeatMillis ? again(isRepeated) : outcomeUnknown
            }
          })
        })
      })

    return Effect.suspend(() => {
      const first = Effect.suspend(() => attempt(lastServerTime(), 1, false))
      if (unknown === undefined) return first
      return Effect.flatMap(askOnce(unknown), () => {
        unknown = undefined
        return first
      })
    })
  }
}
