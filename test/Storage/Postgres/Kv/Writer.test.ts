/** Groups of all kinds by one writer, over a pool whose answers the test sets. */
import { describe, expect } from "@effect/vitest"
import { Effect, Exit, Fiber, TestClock } from "effect"
import { JsonText } from "../../../../src/base/Json/JsonText.ts"
import type { Write } from "../../../../src/Kv/Write.ts"
import { Unanswered, unavailable } from "../../../../src/Storage/Postgres/Database/DatabaseError.ts"
import type { Pool } from "../../../../src/Storage/Postgres/Database/Pool.ts"
import type { Query } from "../../../../src/Storage/Postgres/Database/Statement.ts"
import * as Writer from "../../../../src/Storage/Postgres/Kv/Writer.ts"
import { test } from "../../../Tests.ts"
import { calledBy } from "../Database/Fixture.ts"

const set: Write = {
  operations: [{ op: "set", namespace: "n", key: "k", value: JsonText("1"), expiresAt: null }],
  actor: "tester"
}
const idempotencyKey = { tenant: "t", id: "key", digest: "digest" }
const deleteAll: Write = { operations: [], actor: "tester", prefixDelete: { namespace: "n", prefix: "", limit: 10 } }

const kinds: ReadonlyArray<readonly [statement: string, write: Write]> = [
  ["commit_group", set],
  ["commit_keyed", { ...set, idempotencyKey }],
  ["remove_entries", deleteAll],
  ["remove_keyed", { ...deleteAll, idempotencyKey }]
]

const answers: Record<string, string | number> = {
  commit_group: "1700000000000,5,0,1,1,-1",
  commit_keyed: "1700000000000,5,0,1,1,-1",
  remove_entries: "0,5",
  remove_keyed: "0,5",
  fence: 1
}

/** A pool that answers while it is reachable, and what it was sent. */
const makePool = () => {
  const state = { isReachable: false, sent: [] as Array<{ readonly name: string; readonly id: unknown }> }
  const answer = <A>({ decode, text, values: [id] }: Query<A>) =>
    Effect.suspend(() => {
      const name = calledBy({ text })
      state.sent.push({ name, id })
      if (!state.isReachable) return new Unanswered({ reason: "connection lost" })
      return Effect.sync(() => decode([[answers[name]!]]))
    })
  const pool: Pick<Pool, "run" | "read"> = {
    run: query => answer(query),
    read: query => Effect.mapError(answer(query), unavailable)
  }
  return { state, pool }
}

const options = { onLastSeq: () => {}, onLockWait: () => {}, idempotencyBytes: 1_000_000, onComparison: () => {} }

describe("a group of unknown outcome is fenced off before one", () => {
  for (const [first, lost] of kinds) {
    for (const [second, next] of kinds) {
      test.effect(`of ${second} follows one of ${first}`, function* () {
        const { pool, state } = makePool()
        const commitGroup = Writer.make(pool, () => 0, options)
        const commit = (write: Write) =>
          Effect.map(commitGroup([write], { now: 1_700_000_000_000, isGivenUp: () => false }), ([outcome]) => outcome)
        const cutOff = yield* Effect.fork(Effect.exit(Effect.flatMap(commit(lost), outcome => outcome!)))
        yield* TestClock.adjust("10 seconds")
        expect(Exit.isFailure(yield* Fiber.join(cutOff))).toBe(true)
        const [call] = state.sent
        expect(call?.name).toBe(first)
        // As long as nothing can be asked, nothing is sent.
        state.sent.length = 0
        yield* Effect.exit(commit(next))
        expect(state.sent.map(({ name }) => name)).toEqual(["fence"])

        state.isReachable = true
        state.sent.length = 0
        yield* Effect.flatMap(commit(next), outcome => outcome!)
        expect(state.sent.map(({ name }) => name)).toEqual(["fence", second])
        expect(state.sent[0]?.id).toBe(call?.id)
      })
    }
  }
})
