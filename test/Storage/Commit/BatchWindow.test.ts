import { describe, expect, it } from "@effect/vitest"
import { Effect, TestServices } from "effect"
import * as TestClock from "effect/TestClock"
import { BatchWindow } from "../../../src/Storage/Commit/GroupQueue.ts"
import { test } from "../../Tests.ts"
import { joinAll, settled, setup } from "./Fixture.ts"

/** Milliseconds. */
const commit = 4

describe("BatchWindow", () => {
  it("two halves of writers that return within the time of a commit share one group", () => {
    const window = new BatchWindow(5)
    window.onAnswered(8, 8, commit)
    for (let group = 0; group < 100; group++) {
      expect(window.expected).toBe(16)
      window.onTaken(16, { presentAtStart: group === 0 ? 8 : 1, millis: commit })
      window.onAnswered(16, 0, commit)
    }
  })

  it("the longest wait follows the average commit time, up to a bound", () => {
    const window = new BatchWindow(5)
    expect(window.maxWaitMillis).toBe(0)
    window.onAnswered(1, 0, 2)
    expect(window.maxWaitMillis).toBe(4)
    window.onAnswered(1, 0, 100)
    expect(window.maxWaitMillis).toBe(5)
  })

  it("if no client returns in time, fewer and fewer groups wait", () => {
    const window = new BatchWindow(5)
    const waits: Array<number> = []
    for (let group = 0; group < 200; group++) {
      window.onAnswered(8, 3, commit)
      if (window.expected === 3) continue
      waits.push(group)
      window.onTaken(3, { presentAtStart: 3, millis: 5 })
    }
    expect(waits).toEqual([0, 2, 5, 10, 19, 36, 69, 102, 135, 168])
  })

  it("a wait that brings fewer writes than it has delayed has not paid", () => {
    const window = new BatchWindow(5)
    window.onAnswered(8, 8, commit)
    window.onTaken(12, { presentAtStart: 8, millis: 5 })
    // 4 writes saved a commit of 4 ms, and 8 writes waited for 5 ms.
    window.onAnswered(12, 2, commit)
    expect(window.expected).toBe(2)
  })

  it("if most return, groups wait for as many as returned, until the next attempt to wait for all", () => {
    const window = new BatchWindow(5)
    window.onAnswered(64, 0, commit)
    window.onTaken(60, { presentAtStart: 1, millis: 5 })
    window.onAnswered(60, 4, commit)
    expect(window.expected).toBe(4 + 59)
    window.onTaken(63, { presentAtStart: 5, millis: 1 })
    window.onAnswered(63, 1, commit)
    expect(window.expected).toBe(64)
    // It fails again, so that two groups wait for fewer.
    window.onTaken(61, { presentAtStart: 2, millis: 5 })
    for (const expected of [59, 59, 62]) {
      window.onAnswered(62, 0, commit)
      expect(window.expected).toBe(expected)
    }
  })

  it("after an attempt that brought all, the next failure counts as the first one", () => {
    const window = new BatchWindow(5)
    const fail = () => window.onTaken(1, { presentAtStart: 1, millis: 5 })
    const next = () => {
      window.onAnswered(2, 1, commit)
      return window.expected
    }
    for (const backoff of [1, 2, 4]) {
      expect(next()).toBe(3)
      fail()
      for (let group = 0; group < backoff; group++) expect(next()).toBe(1)
    }
    expect(next()).toBe(3)
    window.onTaken(3, { presentAtStart: 1, millis: 1 })
    expect(next()).toBe(3)
    fail()
    expect([next(), next()]).toEqual([1, 3])
  })
})

describe("GroupCommit, batch window", () => {
  test.scoped("a group waits until the callers that were answered have written again", function* () {
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

  test.scoped("a group whose callers do not write again waits as long as is allowed", function* () {
    const { groups, submit, answer } = yield* setup({ maxBatchWaitMillis: 1 })
    const fibers = yield* Effect.forEach(["a", "b"], submit)
    yield* TestClock.adjust("1 second")
    yield* answer(0)
    // In real time, which passes while the test waits.
    yield* Effect.repeat(TestServices.provideLive(Effect.sleep("1 millis")), { until: () => groups.length === 2 })
    yield* answer(1)
    expect(yield* joinAll(fibers)).toEqual(["done a", "done b"])
  })

  for (const { title, maxGroup } of [
    { title: "operations", maxGroup: { operations: 2, bytes: 1000 } },
    { title: "bytes", maxGroup: { operations: 1000, bytes: 2 } }
  ]) {
    test.scoped(
      `a group that is full by its ${title} is taken at once, even if more writes are expected`,
      function* () {
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
      }
    )
  }
})
