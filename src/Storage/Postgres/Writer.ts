/**
 * Commits groups of writes: repeats what lost a race, and finds out what became of a group whose answer was lost.
 */
import { Effect, Either, Exit } from "effect"
import { StoreUnavailable } from "../../Kv/Store.ts"
import type { Write } from "../../Kv/Write.ts"
import { randomHex } from "../../RandomHex.ts"
import type { Parameter, Pool, Row, Statement } from "./Connections.ts"
import { describe, isConflict, isOfContent, isOutcomeUnknown, isStatementLost, unavailable } from "./DatabaseError.ts"
import * as Group from "./Group.ts"

const call: Statement = {
  name: "commit_group",
  text: "SELECT causeway.commit_group($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
}

/** A mark in the place of the group's own: from then on the group can no longer be committed. */
const fence: Statement = {
  name: "fence_commit",
  text: "INSERT INTO causeway.commits (id) VALUES ($1) ON CONFLICT (id) DO NOTHING RETURNING 1"
}

const lookUp: Statement = { name: "look_up_commit", text: "SELECT result FROM causeway.commits WHERE id = $1" }

const prune: Statement = {
  name: "prune_commits",
  text: "DELETE FROM causeway.commits WHERE at < clock_timestamp() - interval '1 minute'"
}

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

export interface Writer {
  /** The outcome of each write, at this time of the database in epoch milliseconds. Called one at a time. */
  readonly commit: (
    writes: ReadonlyArray<Write>,
    now: number
  ) => Effect.Effect<ReadonlyArray<Either.Either<Group.Outcome, StoreUnavailable>>, StoreUnavailable>
  /** Removes the marks of groups that nobody asks for any more. */
  readonly prune: Effect.Effect<void, StoreUnavailable>
}

/** `onLastSeq` is told of the end of the log after each group. */
export const make = (pool: Pool, onLastSeq: (lastSeq: number) => void): Writer => {
  const callOnce = (id: string, now: number, lockFirst: boolean, parameters: ReadonlyArray<Parameter>) =>
    pool.run(call, [id, now, lockFirst, ...parameters], commitTimeout, textOf)

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

  /** The result of a call that was committed. The failure is that of the group, or of its content. */
  const commitParameters = (
    parameters: ReadonlyArray<Parameter>,
    now: number,
    attempt = 1,
    lockFirst = false
  ): Effect.Effect<string, unknown> =>
    Effect.flatMap(randomHex(4), id =>
      Effect.catchAll(callOnce(id, now, lockFirst, parameters), error => {
        const again = (lockFirst: boolean) =>
          attempt < attempts
            ? commitParameters(parameters, now, attempt + 1, lockFirst)
            : Effect.fail(new StoreUnavailable({ reason: `tried ${attempts} times: ${describe(error)}` }))
        if (isConflict(error)) return again(true)
        if (isStatementLost(error)) return again(lockFirst)
        if (!isOutcomeUnknown(error)) return Effect.fail(error)
        return Effect.matchEffect(ask(id), {
          onFailure: () =>
            Effect.fail(new StoreUnavailable({ reason: `the outcome of a commit is unknown: ${describe(error)}` })),
          onSuccess: result => (result === undefined ? again(lockFirst) : Effect.succeed(result))
        })
      })
    )

  const commitAll = (writes: ReadonlyArray<Write>, now: number): Effect.Effect<ReadonlyArray<Group.Outcome>, unknown> =>
    Effect.suspend(() =>
      Effect.map(commitParameters(Group.encode(writes), now), result => {
        const { lastSeq, outcomes } = Group.decode(writes, result)
        onLastSeq(lastSeq)
        return outcomes
      })
    )

  /** A write that the database refuses must not fail the others of its group. */
  const commitEach = (writes: ReadonlyArray<Write>, now: number) =>
    Effect.forEach(writes, write =>
      Effect.either(
        Effect.mapBoth(commitAll([write], now), { onFailure: unavailable, onSuccess: outcomes => outcomes[0]! })
      )
    )

  return {
    commit: (writes, now) =>
      Effect.matchEffect(commitAll(writes, now), {
        onFailure: error =>
          isOfContent(error) && writes.length > 1 ? commitEach(writes, now) : Exit.fail(unavailable(error)),
        onSuccess: outcomes => Exit.succeed(outcomes.map(outcome => Either.right(outcome)))
      }),
    prune: Effect.asVoid(pool.read(prune, [], () => undefined, commitTimeout))
  }
}
