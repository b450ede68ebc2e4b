import { describe, expect } from "@effect/vitest"
import { Effect } from "effect"
import { yieldToEventLoop } from "../../../src/base/Time/EventLoop.ts"
import { PacedWork } from "../../../src/base/Time/PacedWork.ts"
import { test } from "../../Tests.ts"

describe("Paced work", () => {
  test.live("is done in order, a part of it in each iteration of the event loop", function* () {
    const paced = new PacedWork(10)
    const done: Array<string> = []
    const enter = (name: string, bytes: number) => paced.run(bytes, () => void done.push(name))
    const between: Array<number> = []
    enter("a", 6)
    enter("b", 4)
    enter("large", 50)
    enter("c", 5)
    enter("d", 5)
    enter("e", 1)
    for (let iteration = 0; iteration < 4; iteration++) {
      between.push(done.length)
      yield* yieldToEventLoop
    }
    expect(done).toEqual(["a", "b", "large", "c", "d", "e"])
    expect(between).toEqual([2, 3, 5, 6])
  })

  test.live("continues after work that throws, and without work that was given up", function* () {
    const paced = new PacedWork(1)
    const done: Array<string> = []
    yield* paced.turn(1)
    const waiting = yield* Effect.fork(Effect.map(paced.turn(1), () => done.push("given up")))
    yield* Effect.yieldNow()
    paced.run(1, () => void done.push("next"))
    yield* waiting.interruptAsFork(waiting.id())
    while (done.length === 0) yield* yieldToEventLoop
    expect(done).toEqual(["next"])
  })
})
