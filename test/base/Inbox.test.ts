import { describe, expect } from "@effect/vitest"
import { Effect, Exit, Fiber } from "effect"
import { Inbox } from "../../src/base/Inbox.ts"
import { test } from "../Tests.ts"

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
