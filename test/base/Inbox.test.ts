import { describe, expect, it } from "@effect/vitest"
import { Effect, Exit, Fiber } from "effect"
import { Inbox } from "../../src/base/Inbox.ts"
import { test } from "../Tests.ts"
import * as Interleaving from "../Upstream/Interleaving.ts"

describe("Inbox", () => {
  test.effect("gives what is added in one turn together, and what waits before the end", function* () {
    const inbox = new Inbox<number, string>()
    const taking = yield* Effect.fork(inbox.takeAll)
    yield* Effect.yieldNow()
    inbox.offer(1)
    inbox.offer(2)
    expect(yield* Fiber.join(taking)).toEqual([[1, 2], false])
    inbox.offer(3)
    inbox.end(Exit.void)
    expect(inbox.offer(4)).toBe(false)
    expect(yield* inbox.takeAll).toEqual([[3], true])
    expect(yield* inbox.takeAll).toEqual([[], true])
  })

  it("wakes a consumer wherever it yields before it waits", async () => {
    for (const interleaving of Interleaving.allInterleavings) {
      for (let turns = 0; turns < 4; turns++) {
        const program = Effect.gen(function* () {
          const inbox = new Inbox<number, string>()
          const consumer = Effect.gen(function* () {
            for (;;) {
              yield* inbox.take
              for (let step = 0; step < 25; step++) yield* Effect.void
            }
          })
          const taking = yield* Effect.fork(Effect.exit(consumer))
          inbox.offer(1)
          for (let turn = 0; turn < turns; turn++) yield* Effect.yieldNow()
          inbox.end(Exit.fail("end"))
          return yield* Fiber.join(taking)
        })
        expect(await Interleaving.endOf(program, interleaving)).toEqual(Exit.succeed(Exit.fail("end")))
      }
    }
  })

  test.effect("fails after what waits, and loses nothing to a consumer that was interrupted", function* () {
    const inbox = new Inbox<number, string>()
    const taking = yield* Effect.fork(inbox.take)
    yield* Effect.yieldNow()
    inbox.offer(1)
    yield* Fiber.interrupt(taking)
    inbox.offer(2)
    inbox.end(Exit.fail("broken"))
    inbox.end(Exit.void)
    expect([yield* inbox.take, yield* inbox.take]).toEqual([1, 2])
    expect(yield* Effect.flip(inbox.take)).toBe("broken")
    expect(yield* Effect.flip(inbox.takeAll)).toBe("broken")
  })
})
