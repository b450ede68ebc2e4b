/** Calls whose outcome stays unknown, by a pool that answers as it is told. */
import { expect, it } from "@effect/vitest"
import { Effect, Exit, Fiber, TestClock } from "effect"
import { StoreUnavailable } from "../../../src/Kv/Store.ts"
import type { Parameter, Pool, Row, Statement } from "../../../src/Storage/Postgres/Connections.ts"
import * as GroupCall from "../../../src/Storage/Postgres/GroupCall.ts"

const call: Statement = { name: "call", text: "" }

it.effect("after a call of unknown outcome none is made before its id is fenced off", () =>
  Effect.gen(function* () {
    let isReachable = false
    const seen: Array<string> = []
    const answer = <A>(
      { name }: Statement,
      values: ReadonlyArray<Parameter>,
      decode: (rows: ReadonlyArray<Row>) => A
    ) =>
      Effect.suspend(() => {
        if (!isReachable) return new StoreUnavailable({ reason: "connection lost" })
        seen.push(`${name} ${String(values[0])}`)
        return Effect.sync(() => decode([["result"]]))
      })
    const pool: Pick<Pool, "run" | "read"> = {
      run: (statement, values, _limit, decode) => answer(statement, values, decode),
      read: (statement, values, decode) => answer(statement, values, decode)
    }
    const ids: Array<string> = []
    const callGroup = GroupCall.make(pool, () => 0)
    const commit = callGroup(call, id => {
      ids.push(id)
      return [id]
    })
    const first = yield* Effect.fork(Effect.exit(commit))
    yield* TestClock.adjust("10 seconds")
    expect(Exit.isFailure(yield* Fiber.join(first))).toBe(true)
    // As long as nothing can be asked, nothing is sent.
    expect(Exit.isFailure(yield* Effect.exit(commit))).toBe(true)
    expect(ids).toHaveLength(1)
    isReachable = true
    expect(yield* commit).toBe("result")
    yield* commit
    expect(seen).toEqual([`fence_commit ${ids[0]}`, `call ${ids[1]}`, `call ${ids[2]}`])
  })
)
