import { MessageChannel } from "node:worker_threads"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Either, Exit, Fiber, Option, Scope } from "effect"
import * as TestClock from "effect/TestClock"
import { untilRead } from "../../../src/base/Time/EventLoop.ts"
import { StoreUnavailable } from "../../../src/Kv/Store.ts"
import * as GroupCommit from "../../../src/Storage/Commit/GroupCommit.ts"
import { test } from "../../Tests.ts"
import { joinAll, settled, setup, tagOf, type Write, weigh } from "./Fixture.ts"

describe("GroupCommit, timeouts", () => {
  test.scoped("a commit learns that its group has timed out once the callers have failed", function* () {
    const seen: Array<boolean> = []
    const group = yield* GroupCommit.make<Write, string>({
      commit: (writes, _, isGivenUp) =>
        Effect.sync(() => seen.push(isGivenUp())).pipe(
          Effect.delay("1 second"),
          Effect.repeatN(1),
          Effect.as(writes.map(write => Either.right(write)))
        ),
      timeout: "1500 millis",
      weigh
    })
    const writing = yield* Effect.fork(Effect.flip(group.submit("write")))
    yield* TestClock.adjust("1500 millis")
    expect(yield* Fiber.join(writing)).toBeInstanceOf(StoreUnavailable)
    yield* TestClock.adjust("500 millis")
    expect(seen).toEqual([false, true])
  })

  test.scoped("a hanging commit is noticed also after immediate ones", function* () {
    const { submit } = yield* setup({
      commit: ([write]) => (write === "hangs" ? Effect.never : Effect.succeed([Either.right("done")]))
    })
    const fibers = yield* Effect.forEach(["a", "b", "hangs"], submit)
    yield* TestClock.adjust("2 seconds")
    expect(yield* joinAll(fibers)).toEqual(["done", "done", "StoreUnavailable"])
  })

  test.scoped("the preparation of a commit does not count as commit time", function* () {
    const prepared = yield* Effect.makeLatch(false)
    const { answer, committer, groups, submit } = yield* setup({ prepare: prepared.await })
    const fibers = yield* Effect.forEach(["a", "b"], submit)
    yield* TestClock.adjust("5 seconds")
    expect(committer.isStuck()).toBe(false)
    expect(groups).toEqual([])
    yield* prepared.open
    yield* answer(0)
    expect(yield* joinAll(fibers)).toEqual(["done a", "done b"])
    const last = yield* submit("c")
    yield* TestClock.adjust("1800 millis")
    expect(yield* joinAll([last])).toEqual(["StoreUnavailable"])
    yield* answer(1)
  })

  it.scoped("a hanging group fails all writes until it is answered", () =>
    Effect.gen(function* () {
      const { groups, committer, submit, answer } = yield* setup({ maxWaitingBytes: 2 })
      const fibers = yield* Effect.forEach(["a", "b"], submit)
      yield* TestClock.adjust("1799 millis")
      expect(committer.isStuck()).toBe(false)
      yield* TestClock.adjust("1 millis")
      expect(yield* joinAll(fibers)).toEqual(["StoreUnavailable", "StoreUnavailable"])
      expect(committer.isStuck()).toBe(true)
      expect(yield* joinAll([yield* submit("c")])).toEqual(["StoreUnavailable"])
      yield* answer(0)
      yield* settled
      expect(committer.isStuck()).toBe(false)
      // The failed ones leave room.
      const later = yield* Effect.forEach(["d", "e", "f"], submit)
      yield* answer(1)
      yield* answer(2)
      expect(yield* joinAll(later)).toEqual(["done d", "done e", "done f"])
      expect(groups).toEqual([["a"], ["d"], ["e", "f"]])
    })
  )

  for (const [when, after] of [
    ["at its beginning", (stand: () => void) => stand()],
    ["later", (stand: () => void) => void setImmediate(stand)]
  ] as const) {
    test.scopedLive(
      `an answer is taken that came while the process stood still, ${when} for longer than the limit`,
      function* () {
        const { port1, port2 } = new MessageChannel()
        yield* Effect.addFinalizer(() => Effect.sync(() => port1.close()))
        // Like a writing thread: the answer has arrived before the process continues.
        const standStill = () => {
          port1.postMessage("done")
          const end = performance.now() + 500
          while (performance.now() < end);
        }
        const answered = Effect.async<void>(resume => {
          port2.once("message", () => resume(Effect.void))
          after(standStill)
        })
        const commit = ([write]: ReadonlyArray<Write>) =>
          // The second one is in flight when the watchdog has waited for the answer of the first.
          Effect.as(write === "a" ? answered : untilRead, [Either.right(`done ${write}`)])
        const maxGroup = { operations: 1, bytes: 100 }
        const committer = yield* GroupCommit.make<Write, string>({ commit, weigh, maxGroup, timeout: "400 millis" })
        const writes = yield* Effect.forEach(["a", "b", "c"], write =>
          Effect.fork(Effect.either(committer.submit(write)))
        )
        expect(yield* joinAll(writes)).toEqual(["done a", "done b", "done c"])
        expect(committer.isStuck()).toBe(false)
      }
    )
  }

  test.scoped("a write that is heavier than a group has a longer timeout; waiting writes do not", function* () {
    const { answer, committer, groups, submit } = yield* setup({ maxGroup: { operations: 10, bytes: 4 } })
    // Three times as heavy: 5,400 ms.
    const large = "large write!"
    const first = yield* submit(large)
    const small = yield* submit("a")
    yield* TestClock.adjust("1800 millis")
    expect(yield* joinAll([small])).toEqual(["StoreUnavailable"])
    expect(yield* joinAll([yield* submit("b")])).toEqual(["StoreUnavailable"])
    yield* TestClock.adjust("3599 millis")
    yield* answer(0)
    expect(yield* joinAll([first])).toEqual([`done ${large}`])
    expect(committer.isStuck()).toBe(false)

    const second = yield* submit(large)
    yield* TestClock.adjust("1700 millis")
    yield* answer(1)
    // The watch over the large write does not make it late for the next one.
    const hangs = yield* submit("c")
    yield* TestClock.adjust("1800 millis")
    expect(yield* joinAll([second, hangs])).toEqual([`done ${large}`, "StoreUnavailable"])
    yield* answer(2)

    const third = yield* submit(large)
    yield* TestClock.adjust("5399 millis")
    expect(Option.isNone(yield* Fiber.poll(third))).toBe(true)
    yield* TestClock.adjust("1 millis")
    expect(yield* joinAll([third])).toEqual(["StoreUnavailable"])
    expect(committer.isStuck()).toBe(true)
    yield* answer(3)
    yield* settled
    expect(committer.isStuck()).toBe(false)
    expect(groups).toEqual([[large], [large], ["c"], [large]])
  })
})

describe("GroupCommit, end of the scope", () => {
  test.effect("closing the scope finishes waiting writes and refuses later ones", function* () {
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

  test.effect("closing the scope waits for a hanging group within a limit", function* () {
    const scope = yield* Scope.make()
    const { submit } = yield* Scope.extend(setup(), scope)
    const fiber = yield* submit("a")
    const closing = yield* Effect.fork(Scope.close(scope, Exit.void))
    yield* TestClock.adjust("1800 millis")
    yield* Fiber.join(closing)
    expect(yield* joinAll([fiber])).toEqual(["StoreUnavailable"])
  })

  test.effect(
    "closing the scope answers each write, also if the groups together take longer than its timeout",
    function* () {
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
    }
  )
})
