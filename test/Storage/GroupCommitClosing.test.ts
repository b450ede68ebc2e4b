import { describe, expect, it } from "@effect/vitest"
import { Effect, Either, Exit, Fiber, Option, Scope } from "effect"
import * as TestClock from "effect/TestClock"
import { joinAll, settled, setup, tagOf } from "./GroupCommitFixture.ts"

describe("GroupCommit, end of the scope", () => {
  it.effect("closing the scope finishes waiting writes and refuses later ones", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const { committer, submit, answer } = yield* Scope.extend(setup(), scope)
      const fibers = yield* Effect.forEach(["a", "b"], submit)
      const closing = yield* Effect.fork(Scope.close(scope, Exit.void))
      yield* settled
      expect(tagOf(yield* Effect.either(committer.submit("late")))).toBe("StoreUnavailable")
      yield* answer(0)
      yield* answer(1)
      yield* Fiber.join(closing)
      expect(yield* joinAll(fibers)).toEqual(["done a", "done b"])
    })
  )

  it.effect("closing the scope waits for a hanging group within a limit", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const { submit } = yield* Scope.extend(setup(), scope)
      const fiber = yield* submit("a")
      const closing = yield* Effect.fork(Scope.close(scope, Exit.void))
      yield* TestClock.adjust("1800 millis")
      yield* Fiber.join(closing)
      expect(yield* joinAll([fiber])).toEqual(["StoreUnavailable"])
    })
  )

  it.effect("closing the scope answers each write, also if the groups together take longer than its timeout", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const { submit, answer } = yield* Scope.extend(setup({ maxGroup: { operations: 1, bytes: 1 } }), scope)
      const fibers = yield* Effect.forEach(["a", "b", "c", "d", "e"], submit)
      const closing = yield* Effect.fork(Scope.close(scope, Exit.void))
      for (let index = 0; index < 2; index++) {
        yield* TestClock.adjust("1700 millis")
        yield* answer(index)
      }
      yield* TestClock.adjust("600 millis")
      yield* Fiber.join(closing)
      const ends = yield* Effect.forEach(fibers, fiber => Effect.map(Fiber.poll(fiber), Option.isSome))
      expect(ends).toEqual([true, true, true, true, true])
      const outcomes = yield* Effect.forEach(fibers, Fiber.join)
      expect(outcomes.slice(0, 2).map(tagOf)).toEqual(["done a", "done b"])
      const reasons = outcomes.slice(2).map(outcome => String(Either.merge(outcome)))
      expect(reasons[0]).toMatch(/outcome is unknown/)
      expect(reasons[1]).toMatch(/nothing of it was done/)
      expect(reasons[2]).toMatch(/nothing of it was done/)
    })
  )
})
