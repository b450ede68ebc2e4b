/** Calls whose outcome stays unknown, with a pool whose answers the test sets. */
import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { Unanswered } from "../../../../src/Storage/Postgres/Database/DatabaseError.ts"
import * as GroupCall from "../../../../src/Storage/Postgres/Database/GroupCall.ts"
import type { Pool } from "../../../../src/Storage/Postgres/Database/Pool.ts"
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
