import { describe, expect, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber } from "effect"
import * as Direct from "../../src/base/Direct.ts"
import { Mutex } from "../../src/base/Mutex.ts"
import { test } from "../Tests.ts"
import * as Interleaving from "../Upstream/Interleaving.ts"

const noFiber = (): never => {
  throw new Error("a fiber was asked for")
}

describe("Mutex", () => {
  test.effect("needs no fiber while nothing else runs, and is free after a failure or a defect", function* () {
    const mutex = new Mutex()
    const exits: Array<Exit.Exit<unknown, unknown>> = []
    const thrown = Direct.sync(() => {
      throw "thrown"
    })
    for (const work of [Exit.fail("failed"), thrown, Exit.succeed("done")]) {
      Direct.run(mutex.run<unknown, unknown, never>(work), noFiber, exit => exits.push(exit))
    }
    expect(exits).toEqual([Exit.fail("failed"), Exit.die("thrown"), Exit.succeed("done")])
    expect(yield* mutex.run(Effect.as(Effect.yieldNow(), 1))).toBe(1)
  })

  test.effect("runs one at a time in the order of the calls, and those that are interrupted not at all", function* () {
    const mutex = new Mutex()
    const gate = yield* Deferred.make<void>()
    const ran: Array<number> = []
    let running = 0
    const work = (index: number) =>
      mutex.run(
        Effect.gen(function* () {
          expect(++running).toBe(1)
          yield* index === 0 ? Deferred.await(gate) : Effect.yieldNow()
          ran.push(index)
          running--
        })
      )
    const fibers = yield* Effect.forEach([0, 1, 2, 3, 4], index => Effect.fork(work(index)))
    yield* Effect.yieldNow()
    yield* Fiber.interrupt(fibers[1]!)
    yield* Deferred.succeed(gate, undefined)
    // The next one may have been woken already.
    yield* Fiber.interrupt(fibers[2]!)
    yield* Effect.forEach([fibers[0]!, fibers[3]!, fibers[4]!], Fiber.join)
    expect(ran.filter(index => index !== 2)).toEqual([0, 3, 4])
    expect(yield* mutex.run(Exit.succeed("free"))).toBe("free")
  })

  it("runs all work wherever fibers yield", async () => {
    for (const interleaving of Interleaving.allInterleavings) {
      const program = Effect.suspend(() => {
        const mutex = new Mutex()
        const work = Effect.repeatN(mutex.run(Effect.yieldNow()), 100)
        return Effect.all([work, work, work], { concurrency: 3, discard: true })
      })
      expect(await Interleaving.endOf(program, interleaving)).toEqual(Exit.void)
    }
  })

  test.effect("does not interrupt what has started", function* () {
    const mutex = new Mutex()
    const gate = yield* Deferred.make<void>()
    let isDone = false
    const work = mutex.run(Effect.map(Deferred.await(gate), () => (isDone = true)))
    const fiber = yield* Effect.fork(work)
    yield* Effect.yieldNow()
    const interrupting = yield* Effect.fork(Fiber.interrupt(fiber))
    yield* Effect.yieldNow()
    yield* Deferred.succeed(gate, undefined)
    yield* Fiber.join(interrupting)
    expect(isDone).toBe(true)
  })
})
