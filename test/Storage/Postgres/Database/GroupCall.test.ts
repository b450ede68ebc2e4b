/** Calls whose outcome stays unknown, with a pool whose answers the test sets. */

import { expect, it } from "@effect/vitest"
import { Effect, TestClock } from "effect"
import { Unanswered, unavailable } from "../../../../src/Storage/Postgres/Database/DatabaseError.ts"
import * as GroupCall from "../../../../src/Storage/Postgres/Database/GroupCall.ts"
import type { Pool } from "../../../../src/Storage/Postgres/Database/Pool.ts"
import type { Query } from "../../../../src/Storage/Postgres/Database/Statement.ts"
import { test } from "../../../Tests.ts"
import { calledBy } from "./Fixture.ts"

test.effect(
  "a call without an answer is not repeated after no caller waits for its group, and none is started",
  function* () {
    const sent: Array<string> = []
    let isGivenUp = false
    const pool: Pick<Pool, "run" | "read"> = {
      run: query =>
        Effect.suspend(() => {
          sent.push(calledBy(query))
          isGivenUp = true
          return new Unanswered({ reason: "connection lost" })
        }),
      // The mark could be made, so that the call was not committed and never will be.
      read: ({ decode, text }) =>
        Effect.sync(() => {
          sent.push(calledBy({ text }))
          return decode([[1]])
        })
    }
    const callGroup = GroupCall.make(pool, () => 0)
    for (let n = 0; n < 2; n++) {
      const failure = yield* Effect.flip(
        callGroup(
          "call",
          id => [id],
          () => isGivenUp
        )
      )
      expect(String(failure)).toContain("no caller waits for the group")
      expect(sent).toEqual(["call", "fence"])
    }
  }
)

it.effect("after a call of unknown outcome none is made before its id is fenced off", () =>
  Effect.gen(function* () {
    let isReachable = false
    const seen: Array<string> = []
    const answer = <A>({ decode, text, values }: Query<A>) =>
      Effect.suspend(() => {
        if (!isReachable) return new Unanswered({ reason: "connection lost" })
        seen.push(`${calledBy({ text })} ${String(values[0])}`)
        return Effect.sync(() => decode([["result"]]))
      })
    const callGroup = GroupCall.make(
      { run: answer, read: query => Effect.mapError(answer(query), unavailable) },
      () => 0
    )
    const ids: Array<string> = []
    const commit = callGroup(
      "call",
      id => [ids[ids.push(id) - 1]!],
      () => false
    )
    // As long as nothing can be asked, nothing is sent.
    for (let attempt = 0; attempt < 2; attempt++) {
      const failing = yield* Effect.fork(Effect.flip(commit))
      yield* TestClock.adjust("10 seconds")
      yield* failing
      expect(ids).toHaveLength(1)
    }
    isReachable = true
    expect(yield* commit).toBe("result")
    yield* commit
    expect(seen).toEqual([`fence ${ids[0]}`, `call ${ids[1]}`, `call ${ids[2]}`])
  })
)
