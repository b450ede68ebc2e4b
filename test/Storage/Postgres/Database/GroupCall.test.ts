/** Calls whose outcome stays unknown, with a pool whose answers the test sets. */

import { describe, expect, it } from "@effect/vitest"
import { Effect, Fiber, TestClock } from "effect"
import pg from "pg"
import * as DatabaseError from "../../../../src/Storage/Postgres/Database/DatabaseError.ts"
import { Unanswered, unavailable } from "../../../../src/Storage/Postgres/Database/DatabaseError.ts"
import * as GroupCall from "../../../../src/Storage/Postgres/Database/GroupCall.ts"
import type { Pool } from "../../../../src/Storage/Postgres/Database/Pool.ts"
import * as Portions from "../../../../src/Storage/Postgres/Database/Portions.ts"
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

const { isConflict, isOfContent, isOutcomeUnknown, isOverLimit, isStatementLost, notSent, ofAnswer } = DatabaseError

const reported = (sqlState: string) => {
  const error = new pg.DatabaseError("message", 7, "error")
  error.code = sqlState
  return ofAnswer(error)
}

describe("what is known of a statement that failed", () => {
  it("is nothing where the system reports an error, however much its code looks like one of the database", () => {
    for (const code of ["EPIPE", "EPERM", "ECONNRESET"]) {
      const failure = ofAnswer(Object.assign(new Error("write failed"), { code }))
      expect(isOutcomeUnknown(failure)).toBe(true)
      expect(isOfContent(failure)).toBe(false)
      expect(failure.reason).toBe(`write failed (${code})`)
    }
  })

  it("is that nothing happened where it was not sent, whatever kept it back", () => {
    expect(isOutcomeUnknown(notSent(Object.assign(new Error("refused"), { code: "ECONNREFUSED" })))).toBe(false)
    expect(isConflict(notSent(reported("40001")))).toBe(false)
  })

  it("is that there are too many connections, also in the words of PgBouncer", () => {
    const refusals = [
      ["53300", "sorry, too many clients already"],
      ["08P01", "no more connections allowed (max_client_conn)"],
      ["08P01", "client connections exceeded (max_db_client_connections)"],
      ["08P01", "unsupported startup parameter: options"]
    ].map(([code, message]) => isOverLimit(Object.assign(new Error(message), { code })))
    expect(refusals).toEqual([true, true, true, false])
  })

  it("is what the database reports", () => {
    const meanings = { isConflict, isOfContent, isOutcomeUnknown, isStatementLost }
    const meaningOf = (sqlState: string) =>
      Object.entries(meanings).flatMap(([name, means]) => (means(reported(sqlState)) ? [name] : []))
    for (const [meaning, ...sqlStates] of [
      ["isConflict", "40001", "40P01"],
      ["isOfContent", "22001"],
      ["isStatementLost", "26000", "42P05"],
      ["isOutcomeUnknown", "40003", "08006", "57P01", "58030"]
    ]) {
      for (const sqlState of sqlStates) expect(meaningOf(sqlState)).toEqual([meaning])
    }
    expect(meaningOf("XX000")).toEqual([])
  })
})

/** Work of so many rows that take so many milliseconds each, and the sizes of its portions. */
const rowsOf = (count: number, millis: number) => {
  const sizes: Array<number> = []
  let left = count
  const work = (size: number) =>
    Effect.suspend(() => {
      sizes.push(size)
      const done = Math.min(size, left)
      left -= done
      return Effect.as(Effect.sleep(done * millis), done)
    })
  return { sizes, work }
}

const run = (portions: Portions.Portions, work: (size: number) => Effect.Effect<number, string>) =>
  Effect.gen(function* () {
    const fiber = yield* Effect.fork(Effect.either(portions(work)))
    yield* TestClock.adjust("10 minutes")
    return yield* Fiber.join(fiber)
  })

test.effect(
  "portions grow while they are quick, up to a limit, and shrink when writers would wait too long",
  function* () {
    const portions = Portions.make()
    const quick = rowsOf(2000, 0.01)
    expect(yield* run(portions, quick.work)).toMatchObject({ right: 2000 })
    expect(quick.sizes).toEqual([50, 100, 200, 400, 500, 500, 500])
    const slow = rowsOf(1500, 2)
    expect(yield* run(portions, slow.work)).toMatchObject({ right: 1500 })
    expect(slow.sizes.slice(0, 6)).toEqual([500, 250, 125, 125, 125, 125])
    const waiting = rowsOf(300, 100)
    expect(yield* run(portions, waiting.work)).toMatchObject({ right: 300 })
    expect(waiting.sizes).toEqual([125, 62, 50, 50, 50])
  }
)

test.effect(
  "a portion that fails is followed by a smaller one, so that what is too much at once is done in the end",
  function* () {
    const portions = Portions.make()
    let left = 30
    const sizes: Array<number> = []
    const work = (size: number): Effect.Effect<number, string> =>
      Effect.suspend(() => {
        sizes.push(size)
        if (size > 5) return Effect.zipRight(Effect.sleep(5000), Effect.fail("statement timeout"))
        const done = Math.min(size, left)
        left -= done
        return Effect.as(Effect.sleep(done * 1000), done)
      })
    for (let n = 0; n < 4; n++) expect(yield* run(portions, work)).toMatchObject({ left: "statement timeout" })
    expect(yield* run(portions, work)).toMatchObject({ right: 30 })
    expect(sizes.slice(0, 6)).toEqual([50, 25, 12, 6, 3, 3])
  }
)
