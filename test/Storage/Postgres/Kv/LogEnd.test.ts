/** What a node learns of the end of the log. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Fiber, Option } from "effect"
import { LastSeq } from "../../../../src/Storage/Commit/StoreCommit.ts"
import { LogEnd } from "../../../../src/Storage/Postgres/Kv/LogEnd.ts"
import { test } from "../../../Tests.ts"

/** Reads the end, and returns whether the log lacks changes. */
const check = (end: LogEnd, lastSeq: number, epoch = "e") =>
  Effect.gen(function* () {
    let isCut = false
    const renew = () =>
      Effect.sync(() => {
        isCut = true
      })
    yield* end.read(Effect.succeed({ epoch, lastSeq }), renew)
    return isCut
  })

describe("a log that was cut", () => {
  test.effect("is noticed after it has grown again by a group of this node", function* () {
    const end = new LogEnd()
    end.sending()
    end.committed(1, 0)
    // Two changes of another node, which are then lost.
    expect(yield* check(end, 3)).toBe(false)
    end.sending()
    end.committed(3, 1)
    expect(yield* check(end, 3)).toBe(true)
    expect(yield* check(end, 3, "renewed")).toBe(false)
    end.sending()
    end.committed(4, 3)
    expect(yield* check(end, 4, "renewed")).toBe(false)
  })

  test.effect("is not assumed because of what others commit while a group is sent", function* () {
    const end = new LogEnd()
    expect(yield* check(end, 5)).toBe(false)
    end.sending()
    // The answer of the group comes after a read that has seen later changes.
    expect(yield* check(end, 9)).toBe(false)
    end.committed(6, 5)
    expect(yield* check(end, 9)).toBe(false)
  })

  test.effect("is not assumed after a new epoch, which may begin while a group is sent", function* () {
    const end = new LogEnd()
    expect(yield* check(end, 5)).toBe(false)
    end.sending()
    expect(yield* check(end, 2, "other")).toBe(false)
    end.committed(3, 2)
    expect(yield* check(end, 3, "other")).toBe(false)
  })
})

it.effect("who waits for more than another log has is woken when that takes the place of the log", () =>
  Effect.gen(function* () {
    const end = new LastSeq()
    end.set(5)
    const waiting = yield* Effect.fork(end.awaitPast(5))
    yield* Effect.yieldNow()
    end.set(3)
    yield* Effect.yieldNow()
    expect(Option.isSome(yield* Fiber.poll(waiting))).toBe(true)
  })
)
