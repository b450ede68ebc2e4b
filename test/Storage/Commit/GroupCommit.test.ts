import { describe, expect, it } from "@effect/vitest"
import { Cause, Effect, Either, Exit, Fiber, FastCheck as fc, Logger, Option, TestServices } from "effect"
import * as TestClock from "effect/TestClock"
import * as TestContext from "effect/TestContext"
import * as Direct from "../../../src/base/Direct.ts"
import { StoreUnavailable } from "../../../src/Kv/Store.ts"
import type { CommittedGroup } from "../../../src/Storage/Commit/GroupCommit.ts"
import { BatchWindow } from "../../../src/Storage/Commit/GroupQueue.ts"
import { times } from "../../Scale.ts"
import { test } from "../../Tests.ts"
import { joinAll, settled, setup, tagOf, type Write } from "./Fixture.ts"

/** Runs an effect without a fiber. Returns how to interrupt it. */
const unforked = <A, E>(effect: Effect.Effect<A, E>, onExit: (exit: Exit.Exit<A, E>) => void): (() => void) => {
  const fork = () => {
    throw new Error("a fiber was run")
  }
  return Direct.run(effect, fork, exit => {
    if (!Exit.isInterrupted(exit)) onExit(exit)
  })
}

type Tagged = string | { readonly _tag: string }

describe("GroupCommit", () => {
  for (const [reason, commit] of [
    ["returned no outcome for a write", Effect.succeed([])],
    ["was interrupted", Effect.interrupt]
  ] as const) {
    it.scoped(`a write of a commit that ${reason} has failed`, () =>
      Effect.gen(function* () {
        const { committer } = yield* setup({ commit: () => commit })
        expect(String(yield* Effect.flip(committer.submit("a")))).toContain(reason)
      })
    )
  }

  test.scoped("a defect of the backend reaches its group and no other", function* () {
    let calls = 0
    const { committer } = yield* setup({
      commit: group => (calls++ === 0 ? Effect.die("a bug") : Effect.succeed(group.map(write => Either.right(write))))
    })
    expect(Exit.isFailure(yield* Effect.exit(committer.submit("a")))).toBe(true)
    expect(yield* committer.submit("b")).toBe("b")
  })

  test.scoped(
    "groups are observed: the number of their writes, their duration, and whether they have failed",
    function* () {
      const observed: Array<CommittedGroup> = []
      const { submit, answer } = yield* setup({ observe: group => observed.push(group) })
      yield* Effect.forEach(["a", "b", "c"], submit)
      yield* TestClock.adjust("40 millis")
      yield* answer(0)
      yield* settled
      yield* TestClock.adjust("20 millis")
      yield* answer(1, new StoreUnavailable({ reason: "the disk is full" }))
      yield* settled
      expect(observed).toEqual([
        { writes: 1, millis: 40, outcome: "ok" },
        { writes: 2, millis: 20, outcome: "failed" }
      ])
    }
  )

  test.scoped("groups are bounded, and a write larger than a group is committed alone", function* () {
    const { groups, submit, answer } = yield* setup({ maxGroup: { operations: 2, bytes: 4 } })
    const fibers = yield* Effect.forEach(["first", "a", "b", "c", "larger", "dd", "ee", "f"], submit)
    for (let index = 0; index < 6; index++) yield* answer(index)
    yield* joinAll(fibers)
    expect(groups).toEqual([["first"], ["a", "b"], ["c"], ["larger"], ["dd", "ee"], ["f"]])
  })

  test.scoped("above the limit of waiting writes the next is refused at once, until a commit", function* () {
    const { submit, answer } = yield* setup({ maxWaiting: 2 })
    const fibers = yield* Effect.forEach(["a", "b", "c", "d"], submit)
    expect(tagOf(yield* Fiber.join(fibers[3]!))).toBe("StoreBusy")
    yield* answer(0)
    yield* answer(1)
    const last = yield* submit("e")
    yield* answer(2)
    expect(yield* joinAll([...fibers, last])).toEqual(["done a", "done b", "done c", "StoreBusy", "done e"])
  })

  test.scoped("above the limit of waiting bytes the next is refused, but one of any size may wait alone", function* () {
    const { submit, answer } = yield* setup({ maxWaitingBytes: 4 })
    const fibers = yield* Effect.forEach(["a", "enormous", "b"], submit)
    yield* answer(0)
    yield* answer(1)
    expect(yield* joinAll(fibers)).toEqual(["done a", "done enormous", "StoreBusy"])
  })

  test.scoped("without a fiber a caller is answered once, and not after its interruption", function* () {
    const { committer, groups, answer } = yield* setup({ maxWaiting: 2 })
    const answers: Array<string> = []
    const submit = (write: Write) =>
      unforked(committer.submit(write), exit =>
        answers.push(
          `${write}: ${Exit.isSuccess(exit) ? exit.value : tagOf(Either.left(Cause.squash(exit.cause) as Tagged))}`
        )
      )
    submit("a")
    yield* settled
    const leaveFlight = submit("b")
    const leaveQueue = submit("c")
    submit("refused")
    expect(answers).toEqual(["refused: StoreBusy"])
    leaveQueue()
    leaveQueue()
    submit("d")
    yield* answer(0)
    yield* settled
    leaveFlight()
    submit("bad")
    yield* answer(1)
    yield* answer(2)
    yield* settled
    expect(answers).toEqual(["refused: StoreBusy", "a: done a", "d: done d", "bad: refused bad"])
    expect(groups).toEqual([["a"], ["b", "d"], ["bad"]])
  })

  it.scoped("a callback may commit the next write at once, and one that throws does not affect others", () =>
    Effect.gen(function* () {
      const { committer, groups, answer } = yield* setup()
      const answers: Array<string> = []
      const follow = (write: Write) => unforked(committer.submit(write), () => answers.push(write))
      unforked(committer.submit("a"), () => {
        follow("next")
        throw new Error("a bug of the caller")
      })
      follow("b")
      yield* answer(0)
      yield* answer(1)
      yield* settled
      expect(answers).toEqual(["b", "next"])
      expect(groups).toEqual([["a", "b"], ["next"]])
    }).pipe(Effect.provide(Logger.remove(Logger.defaultLogger)))
  )

  it.scoped("a callback of a late group may commit the next write at once, too", () =>
    Effect.gen(function* () {
      const { committer, answer } = yield* setup({ maxGroup: { operations: 1, bytes: 1 } })
      const answers: Array<boolean> = []
      unforked(committer.submit("large"), () => {
        unforked(committer.submit("next"), exit => answers.push(Exit.isSuccess(exit)))
      })
      yield* TestClock.adjust("2 seconds")
      yield* answer(0)
      yield* answer(1)
      yield* settled
      expect(answers).toEqual([true])
    })
  )

  test.scoped("interrupted writes make room, however many wait", function* () {
    const { committer, groups, answer } = yield* setup({ maxWaiting: 100, maxWaitingBytes: 1000 })
    yield* Effect.sync(() => unforked(committer.submit("first"), () => undefined))
    yield* settled
    const answers: Array<Write> = []
    const stay: Array<Write> = []
    const leaves: Array<() => void> = []
    for (let index = 0; index < 1000; index++) {
      const write = `w${index}`
      const leave = unforked(committer.submit(write), exit => answers.push(Exit.isSuccess(exit) ? write : "busy"))
      if (index % 20 === 0) stay.push(write)
      else leaves.push(leave)
      if (leaves.length > 40) for (const leave of leaves.splice(0)) leave()
    }
    for (const leave of leaves) leave()
    expect(answers).toEqual([])
    yield* answer(0)
    yield* answer(1)
    yield* settled
    expect(answers).toEqual(stay)
    expect(groups).toEqual([["first"], stay])
  })

  it("a write is in one group at most, in order, and its caller gets its outcome", async () => {
    const action = fc.constantFrom<Action>("submit", "submit", "interrupt", "answer", "fail")
    await fc.assert(
      fc.asyncProperty(fc.array(action, { minLength: 10, maxLength: 40, size: "max" }), actions =>
        Effect.runPromise(Effect.provide(Effect.scoped(play(actions)), TestContext.TestContext))
      ),
      { numRuns: times(50) }
    )
  })
})

type Action = "submit" | "interrupt" | "answer" | "fail"

const play = (actions: ReadonlyArray<Action>) =>
  Effect.gen(function* () {
    const { groups, submit, answer } = yield* setup({ maxGroup: { operations: 3, bytes: 100 } })
    const callers = new Map<string, Fiber.Fiber<Either.Either<string, string | { readonly _tag: string }>>>()
    const interrupted = new Set<string>()
    const failed = new Set<string>()
    let answered = 0
    const next = (fails: boolean) =>
      Effect.suspend(() => {
        if (answered === groups.length) return Effect.void
        if (fails) for (const write of groups[answered]!) failed.add(write)
        return answer(answered++, fails ? new StoreUnavailable({ reason: "the disk is full" }) : Effect.void)
      })
    for (const [index, action] of actions.entries()) {
      const write = `${index % 7 === 3 ? "bad" : "w"}${index}`
      if (action === "submit") callers.set(write, yield* submit(write))
      else if (action === "interrupt") {
        const caller = [...callers].find(([, fiber]) => Option.isNone(Effect.runSync(Fiber.poll(fiber))))
        if (caller !== undefined) {
          interrupted.add(caller[0])
          yield* Fiber.interrupt(caller[1])
        }
      } else yield* next(action === "fail")
      yield* settled
    }
    while (answered < groups.length) {
      yield* next(false)
      yield* settled
    }
    const committed = groups.flat()
    expect([...new Set(committed)]).toEqual(committed)
    expect([...callers.keys()].filter(write => committed.includes(write))).toEqual(committed)
    for (const [write, fiber] of callers) {
      if (interrupted.has(write)) continue
      expect(committed).toContain(write)
      expect(Option.isSome(yield* Fiber.poll(fiber))).toBe(true)
      expect(tagOf(yield* Fiber.join(fiber))).toBe(
        failed.has(write) ? "StoreUnavailable" : `${write.startsWith("bad") ? "refused" : "done"} ${write}`
      )
    }
  })

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

  test.scoped("groups start at intervals, unless one is full, and the first one at once", function* () {
    const options = { spacingMillis: 3_600_000, maxGroup: { operations: 2, bytes: 1000 }, timeout: "1 day" } as const
    const { groups, submit, answer } = yield* setup(options)
    const first = yield* submit("a")
    yield* answer(0)
    const fibers = [first, yield* submit("b")]
    expect(groups).toEqual([["a"]])
    fibers.push(yield* submit("c"))
    expect(groups).toEqual([["a"], ["b", "c"]])
    yield* answer(1)
    expect(yield* joinAll(fibers)).toEqual(["done a", "done b", "done c"])
  })

  test.scoped("a group that is not full starts after the interval", function* () {
    const { groups, submit, answer } = yield* setup({ spacingMillis: 2 })
    const fibers = [yield* submit("a")]
    yield* answer(0)
    fibers.push(yield* submit("b"))
    yield* Effect.repeat(TestServices.provideLive(Effect.sleep("1 millis")), { until: () => groups.length === 2 })
    yield* answer(1)
    expect(yield* joinAll(fibers)).toEqual(["done a", "done b"])
  })
})
