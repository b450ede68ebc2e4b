import { expect } from "@effect/vitest"
import { Effect, Fiber, TestClock } from "effect"
import * as Portions from "../../../../src/Storage/Postgres/Database/Portions.ts"
import { test } from "../../../Tests.ts"

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
