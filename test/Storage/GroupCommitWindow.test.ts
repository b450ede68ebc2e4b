import { describe, expect, it } from "@effect/vitest"
import { Effect, TestServices } from "effect"
import * as TestClock from "effect/TestClock"
import { joinAll, settled, setup } from "./GroupCommitFixture.ts"

describe("GroupCommit, batch window", () => {
  it.scoped("a group waits until the callers that were answered have written again", () =>
    Effect.gen(function* () {
      const { groups, submit, answer } = yield* setup({ maxBatchWaitMillis: 3_600_000, timeout: "1 day" })
      // No write is expected yet.
      const fibers = yield* Effect.forEach(["a", "b", "c"], submit)
      expect(groups).toEqual([["a"]])
      yield* TestClock.adjust("1 hour")
      yield* answer(0)
      yield* settled
      expect(groups).toEqual([["a"]])
      const last = yield* submit("d")
      expect(groups).toEqual([["a"], ["b", "c", "d"]])
      yield* answer(1)
      expect(yield* joinAll([...fibers, last])).toEqual(["a", "b", "c", "d"].map(write => `done ${write}`))
    })
  )

  for (const { title, maxBatchWaitMillis, commit } of [
    { title: "as long as is allowed", maxBatchWaitMillis: 1, commit: "1 second" },
    { title: "twice as long as a commit takes", maxBatchWaitMillis: 3_600_000, commit: "1 millis" }
  ] as const) {
    it.scoped(`a group whose callers do not write again waits ${title}`, () =>
      Effect.gen(function* () {
        const { groups, submit, answer } = yield* setup({ maxBatchWaitMillis })
        const fibers = yield* Effect.forEach(["a", "b"], submit)
        yield* TestClock.adjust(commit)
        yield* answer(0)
        // In real time, which passes while the test waits.
        yield* Effect.repeat(TestServices.provideLive(Effect.sleep("1 millis")), { until: () => groups.length === 2 })
        yield* answer(1)
        expect(yield* joinAll(fibers)).toEqual(["done a", "done b"])
      })
    )
  }

  for (const { title, maxGroup } of [
    { title: "operations", maxGroup: { operations: 2, bytes: 1000 } },
    { title: "bytes", maxGroup: { operations: 1000, bytes: 2 } }
  ]) {
    it.scoped(`a group that is full by its ${title} is taken at once, even if more writes are expected`, () =>
      Effect.gen(function* () {
        const { groups, submit, answer } = yield* setup({ maxBatchWaitMillis: 3_600_000, maxGroup, timeout: "1 day" })
        const fibers = yield* Effect.forEach(["a", "b", "c", "d", "e", "f"], submit)
        yield* TestClock.adjust("1 hour")
        yield* answer(0)
        yield* settled
        expect(groups).toEqual([["a"], ["b", "c"]])
        yield* answer(1)
        yield* settled
        expect(groups).toEqual([["a"], ["b", "c"], ["d", "e"]])
        yield* answer(2)
        const last = yield* submit("g")
        yield* answer(3)
        expect(yield* joinAll([...fibers, last])).toHaveLength(7)
      })
    )
  }

  it.scoped("after a wait for writes that did not arrive, the next group does not wait for answered callers", () =>
    Effect.gen(function* () {
      const { groups, submit, answer } = yield* setup({ maxBatchWaitMillis: 100 })
      const fibers = yield* Effect.forEach(["a", "b"], submit)
      yield* TestClock.adjust("1 second")
      yield* answer(0)
      // In real time, which passes while the test waits. Without this wait the next group would wait.
      yield* Effect.repeat(TestServices.provideLive(Effect.sleep("1 millis")), { until: () => groups.length === 2 })
      const next = yield* submit("c")
      yield* TestClock.adjust("1 second")
      yield* answer(1)
      yield* settled
      expect(groups).toEqual([["a"], ["b"], ["c"]])
      yield* answer(2)
      expect(yield* joinAll([...fibers, next])).toEqual(["done a", "done b", "done c"])
    })
  )

  it.scoped("if commits take no time, or no caller was answered yet, no group waits", () =>
    Effect.gen(function* () {
      const { groups, submit, answer } = yield* setup({ maxBatchWaitMillis: 3_600_000 })
      const fibers = yield* Effect.forEach(["a", "b"], submit)
      yield* answer(0)
      yield* settled
      expect(groups).toEqual([["a"], ["b"]])
      yield* answer(1)
      expect(yield* joinAll(fibers)).toEqual(["done a", "done b"])
    })
  )
})
