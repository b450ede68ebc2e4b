/**
 * Calls of functions that commit a group of writes: repeats what lost a race, and finds out what became of a call whose
 * answer was lost.
 */
import { Effect } from "effect"
import { StoreUnavailable } from "../../Kv/Store.ts"
import { randomHex } from "../../RandomHex.ts"
import type { Parameter, Pool, Row, Statement } from "./Connections.ts"
import { describe, isConflict, isOutcomeUnknown, isStatementLost } from "./DatabaseError.ts"

/** A mark in the place of the group's own: from then on the group can no longer be committed. */
const fence: Statement = {
  name: "fence_commit",
  text: "INSERT INTO causeway.commits (id) VALUES ($1) ON CONFLICT (id) DO NOTHING RETURNING 1"
}

const lookUp: Statement = { name: "look_up_commit", text: "SELECT result FROM causeway.commits WHERE id = $1" }

/** Milliseconds that a group may take, after which its outcome is asked for. It is more than the server allows. */
export const commitTimeout = 6000

/** Milliseconds that the server gives a statement of a writer. */
export const statementTimeout = 5000

/** How often a group is tried, in all. */
const attempts = 4

/** How often the outcome of a group is asked for, and the pause before each time. */
const questions = 5
const pause = "200 millis"

const textOf = (rows: ReadonlyArray<Row>): string => String(rows[0]?.[0])

/**
 * Calls the function with an id for the group, under which the function adds a mark with its result to
 * `causeway.commits`. The id is another one each time that the group is tried; `isRepeated` is true after it has lost a
 * race. The effect returns the result of a call that was committed. It fails with what the database has reported.
 *
 * Calls are made one at a time. None is made as long as the outcome of an earlier one is unknown, so that they are
 * committed in order.
 */
export type GroupCall = (
  parametersOf: (id: string, isRepeated: boolean) => ReadonlyArray<Parameter>
) => Effect.Effect<string, unknown>

/** `call` is the statement that calls the function. */
export const make = (pool: Pick<Pool, "run" | "read">, call: Statement): GroupCall => {
  /** The id of a call whose outcome could not be asked for. */
  let unknown: string | undefined

  /**
   * What was committed under an id, or nothing where nothing was and never will be. The mark waits for a transaction
   * that has made its own, and makes one fail that has not yet.
   */
  const askOnce = (id: string): Effect.Effect<string | undefined, StoreUnavailable> =>
    Effect.flatMap(
      pool.read(fence, [id], rows => rows.length > 0),
      isFenced =>
        isFenced
          ? Effect.succeed(undefined)
          : Effect.flatMap(
              pool.read(lookUp, [id], rows => rows[0]?.[0]),
              // An earlier question may have made the mark and lost its answer.
              result => Effect.succeed(typeof result === "string" ? result : undefined)
            )
    )

  const ask = (id: string, left = questions): Effect.Effect<string | undefined, StoreUnavailable> =>
    Effect.catchAll(askOnce(id), error =>
      left > 1 ? Effect.zipRight(Effect.sleep(pause), ask(id, left - 1)) : Effect.fail(error)
    )

  const attempt = (
    parametersOf: Parameters<GroupCall>[0],
    number: number,
    isRepeated: boolean
  ): Effect.Effect<string, unknown> =>
    Effect.flatMap(randomHex(4), id =>
      Effect.catchAll(pool.run(call, parametersOf(id, isRepeated), commitTimeout, textOf), error => {
        const again = (isRepeated: boolean) =>
          number < attempts
            ? attempt(parametersOf, number + 1, isRepeated)
            : Effect.fail(new StoreUnavailable({ reason: `tried ${attempts} times: ${describe(error)}` }))
        if (isConflict(error)) return again(true)
        if (isStatementLost(error)) return again(isRepeated)
        if (!isOutcomeUnknown(error)) return Effect.fail(error)
        return Effect.matchEffect(ask(id), {
          onFailure: () => {
            unknown = id
            return Effect.fail(
              new StoreUnavailable({ reason: `the outcome of a commit is unknown: ${describe(error)}` })
            )
          },
          onSuccess: result => (result === undefined ? again(isRepeated) : Effect.succeed(result))
        })
      })
    )

  return parametersOf =>
    Effect.suspend(() => {
      if (unknown === undefined) return attempt(parametersOf, 1, false)
      return Effect.flatMap(askOnce(unknown), () => {
        unknown = undefined
        return attempt(parametersOf, 1, false)
      })
    })
}
