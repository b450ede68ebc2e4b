import { assert, describe, it } from "@effect/vitest"
import { Effect, Either, Fiber, TestClock } from "effect"
import { StoreUnavailable } from "../../src/Kv/Store.ts"
import * as GroupCommit from "../../src/Storage/GroupCommit.ts"

/** A committer on a disk that takes 40 ms, and the observed groups. */
const setup = (fails: boolean) =>
  Effect.gen(function* () {
    const groups: Array<GroupCommit.CommittedGroup> = []
    const { submit } = yield* GroupCommit.make<string, string>({
      commit: group =>
        Effect.delay(
          fails ? new StoreUnavailable({ reason: "no disk" }) : Effect.succeed(group.map(write => Either.right(write))),
          "40 millis"
        ),
      weigh: () => ({ operations: 1, bytes: 1 }),
      observe: group => groups.push(group)
    })
    const write = (count: number) =>
      Effect.gen(function* () {
        const writes = Effect.all(
          Array.from({ length: count }, (_, index) => Effect.either(submit(String(index)))),
          { concurrency: "unbounded" }
        )
        const fiber = yield* Effect.fork(writes)
        yield* TestClock.adjust("80 millis")
        return yield* Fiber.join(fiber)
      })
    return { groups, write }
  })

describe("commits", () => {
  it.scoped("are observed by group: the number of its writes, and its duration", () =>
    Effect.gen(function* () {
      const { groups, write } = yield* setup(false)
      yield* write(1)
      assert.deepStrictEqual(groups, [{ writes: 1, millis: 40, outcome: "ok" }])
      yield* write(5)
      assert.deepStrictEqual(
        groups.slice(1).reduce((sum, { writes }) => sum + writes, 0),
        5
      )
      for (const { millis, outcome } of groups) assert.deepStrictEqual([millis, outcome], [40, "ok"])
    })
  )

  it.scoped("that fail are observed as failed, once for a group", () =>
    Effect.gen(function* () {
      const { groups, write } = yield* setup(true)
      const [outcome] = yield* write(1)
      assert.isTrue(outcome !== undefined && Either.isLeft(outcome))
      assert.deepStrictEqual(groups, [{ writes: 1, millis: 40, outcome: "failed" }])
    })
  )
})
