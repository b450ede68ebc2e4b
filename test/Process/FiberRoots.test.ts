import { describe, expect, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import * as FiberRoots from "../../src/Process/FiberRoots.ts"

const before = Effect.runFork(Effect.never)
// Says no where an upgrade of effect keeps its roots otherwise: then Process/FiberRoots.ts wants another look.
const installed = FiberRoots.install()

describe("the list of root fibers", () => {
  it("takes the place of Effect's, once", () => {
    expect(installed).toBe(true)
    expect(FiberRoots.install()).toBe(true)
  })

  it.effect("has a fiber that was running before, until it ends", () =>
    Effect.gen(function* () {
      expect(yield* Fiber.roots).toContain(before)
      yield* Fiber.interrupt(before)
      expect(yield* Fiber.roots).not.toContain(before)
    })
  )

  it.effect("has the fibers that run, in the order of their start, and those that ended no more", () =>
    Effect.gen(function* () {
      const fibers = yield* Effect.replicateEffect(Effect.forkDaemon(Effect.never), 5)
      const ours = Effect.map(Fiber.roots, roots => roots.filter(root => fibers.some(fiber => fiber === root)))
      expect(yield* ours).toEqual(fibers)
      const [first, second, third, fourth, fifth] = fibers
      yield* Fiber.interrupt(third!)
      expect(yield* ours).toEqual([first, second, fourth, fifth])
      yield* Fiber.interrupt(first!)
      yield* Fiber.interrupt(fifth!)
      expect(yield* ours).toEqual([second, fourth])
      const late = yield* Effect.forkDaemon(Effect.never)
      yield* Fiber.interruptAll([second!, fourth!])
      expect(yield* ours).toEqual([])
      expect(yield* Fiber.roots).toContain(late)
      yield* Fiber.interrupt(late)
    })
  )

  it.effect("loses a fiber that ends by itself, also one that ended while it was started", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      const waiting = Effect.runFork(Deferred.await(gate))
      const ended = Effect.runFork(Effect.fail("at once"))
      expect(yield* Fiber.roots).toContain(waiting)
      expect(yield* Fiber.roots).not.toContain(ended)
      yield* Deferred.succeed(gate, undefined)
      yield* Fiber.await(waiting)
      expect(yield* Fiber.roots).not.toContain(waiting)
    })
  )

  it("can be read while fibers end", () => {
    const fibers = Array.from({ length: 3 }, () => Effect.runFork(Effect.never))
    const roots = new FiberRoots.FiberRoots()
    for (const fiber of fibers) roots.track(fiber)
    const seen: Array<FiberRoots.Root> = []
    for (const fiber of roots) {
      seen.push(fiber)
      fiber.unsafeInterruptAsFork(fiber.id())
    }
    expect(seen).toEqual(fibers)
  })
})
