import { MessageChannel } from "node:worker_threads"
import { describe, expect, it } from "@effect/vitest"
import {
  Cause,
  Deferred,
  Effect,
  Either,
  Exit,
  Fiber,
  FastCheck as fc,
  Logger,
  Option,
  Scope,
  TestServices
} from "effect"
import * as TestClock from "effect/TestClock"
import * as TestContext from "effect/TestContext"
import * as Direct from "../../src/Direct.ts"
import { StoreUnavailable } from "../../src/Kv/Store.ts"
import * as GroupCommit from "../../src/Storage/GroupCommit.ts"

type Write = string

/** A backend whose groups come back when they are let go, one after the other. */
const makeBackend = () => {
  const groups: Array<ReadonlyArray<Write>> = []
  const gates: Array<Deferred.Deferred<void, StoreUnavailable>> = []
  const commit = (group: ReadonlyArray<Write>) =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void, StoreUnavailable>()
      groups.push(group)
      gates.push(gate)
      yield* Deferred.await(gate)
      return group.map(write =>
        write.startsWith("bad") ? Either.left(`refused ${write}`) : Either.right(`done ${write}`)
      )
    })
  /** Waits until a group is there, and lets it come back. */
  const answer = (index: number, result: Effect.Effect<void, StoreUnavailable> = Effect.void) =>
    Effect.zipRight(
      settled,
      Effect.suspend(() => Deferred.complete(gates[index]!, result))
    )
  return { groups, commit, answer }
}

/** Lets all fibers that can go on do so. */
const settled = TestClock.adjust(0)

const weigh = (write: Write): GroupCommit.Weight => ({ operations: 1, bytes: write.length })

/** Runs an effect without a fiber. Returns how to interrupt it. */
const unforked = <A, E>(effect: Effect.Effect<A, E>, onExit: (exit: Exit.Exit<A, E>) => void): (() => void) => {
  const fork = () => {
    throw new Error("a fiber was run")
  }
  return Direct.run(effect, fork, exit => {
    if (!Exit.isInterrupted(exit)) onExit(exit)
  })
}

const setup = (options: Partial<GroupCommit.Options<Write, string, string>> = {}) =>
  Effect.gen(function* () {
    const backend = makeBackend()
    const committer = yield* GroupCommit.make<Write, string, string>({ commit: backend.commit, weigh, ...options })
    const submit = (write: Write) => Effect.zipLeft(Effect.fork(Effect.either(committer.submit(write))), settled)
    return { ...backend, committer, submit }
  })

const tagOf = <A, E extends string | { readonly _tag: string }>(outcome: Either.Either<A, E>) =>
  Either.match(outcome, {
    onLeft: error => (typeof error === "string" ? error : error._tag),
    onRight: value => value
  })

type Tagged = string | { readonly _tag: string }

const joinAll = (fibers: ReadonlyArray<Fiber.Fiber<Either.Either<string, string | { readonly _tag: string }>>>) =>
  Effect.forEach(fibers, fiber => Effect.map(Fiber.join(fiber), tagOf))

describe("GroupCommit", () => {
  it.scoped("a backend is told that its group is given up once the callers are told that it failed", () =>
    Effect.gen(function* () {
      const seen: Array<boolean> = []
      const group = yield* GroupCommit.make<Write, string>({
        commit: (writes, _, isGivenUp) =>
          Effect.sync(() => seen.push(isGivenUp())).pipe(
            Effect.delay("1 second"),
            Effect.repeatN(1),
            Effect.as(writes.map(write => Either.right(write)))
          ),
        patience: "1500 millis",
        weigh
      })
      const writing = yield* Effect.fork(Effect.flip(group.submit("write")))
      yield* TestClock.adjust("1500 millis")
      expect(yield* Fiber.join(writing)).toBeInstanceOf(StoreUnavailable)
      yield* TestClock.adjust("500 millis")
      expect(seen).toEqual([false, true])
    })
  )

  it.scoped("writes that arrive during a commit form the next group, in order", () =>
    Effect.gen(function* () {
      const { groups, submit, answer } = yield* setup()
      const fibers = yield* Effect.forEach(["a", "b", "c"], submit)
      yield* answer(0)
      yield* answer(1)
      expect(yield* joinAll(fibers)).toEqual(["done a", "done b", "done c"])
      expect(groups).toEqual([["a"], ["b", "c"]])
    })
  )

  it.scoped("a refused write fails alone", () =>
    Effect.gen(function* () {
      const { submit, answer } = yield* setup()
      const fibers = yield* Effect.forEach(["a", "b", "bad", "c"], submit)
      yield* answer(0)
      yield* answer(1)
      expect(yield* joinAll(fibers)).toEqual(["done a", "done b", "refused bad", "done c"])
    })
  )

  it.scoped("a failed group fails its writes, and the next group is committed", () =>
    Effect.gen(function* () {
      const { submit, answer } = yield* setup()
      const fibers = yield* Effect.forEach(["a", "b"], submit)
      yield* answer(0, new StoreUnavailable({ reason: "the disk is full" }))
      yield* answer(1)
      expect(yield* joinAll(fibers)).toEqual(["StoreUnavailable", "done b"])
    })
  )

  it.scoped("a write that the backend does not answer for is not acknowledged", () =>
    Effect.gen(function* () {
      const { submit } = yield* setup({ commit: () => Effect.succeed([]) })
      expect(yield* joinAll([yield* submit("a")])).toEqual(["StoreUnavailable"])
    })
  )

  it.scoped("a defect of the backend reaches its group and no other", () =>
    Effect.gen(function* () {
      let calls = 0
      const { committer } = yield* setup({
        commit: group => (calls++ === 0 ? Effect.die("a bug") : Effect.succeed(group.map(write => Either.right(write))))
      })
      expect(Exit.isFailure(yield* Effect.exit(committer.submit("a")))).toBe(true)
      expect(yield* committer.submit("b")).toBe("b")
    })
  )

  it.scoped("a hanging commit is noticed also after immediate ones", () =>
    Effect.gen(function* () {
      const { submit } = yield* setup({
        commit: ([write]) => (write === "hangs" ? Effect.never : Effect.succeed([Either.right("done")]))
      })
      const fibers = yield* Effect.forEach(["a", "b", "hangs"], submit)
      yield* TestClock.adjust("2 seconds")
      expect(yield* joinAll(fibers)).toEqual(["done", "done", "StoreUnavailable"])
    })
  )

  it.scoped("what is waited for before a commit is no part of its time", () =>
    Effect.gen(function* () {
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
  )

  it.scoped("groups are bounded, and a write larger than a group is committed alone", () =>
    Effect.gen(function* () {
      const { groups, submit, answer } = yield* setup({ maxGroup: { operations: 2, bytes: 4 } })
      const fibers = yield* Effect.forEach(["first", "a", "b", "c", "larger", "dd", "ee", "f"], submit)
      for (let index = 0; index < 6; index++) yield* answer(index)
      yield* joinAll(fibers)
      expect(groups).toEqual([["first"], ["a", "b"], ["c"], ["larger"], ["dd", "ee"], ["f"]])
    })
  )

  it.scoped("a group waits until the callers that were answered have written again", () =>
    Effect.gen(function* () {
      const { groups, submit, answer } = yield* setup({ maxBatchWaitMillis: 3_600_000, patience: "1 day" })
      // Nobody is expected yet.
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
        // By the true time, which passes while the test waits.
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
    it.scoped(`a group that is full by its ${title} is taken at once, whoever else is expected`, () =>
      Effect.gen(function* () {
        const { groups, submit, answer } = yield* setup({ maxBatchWaitMillis: 3_600_000, maxGroup, patience: "1 day" })
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

  it.scoped("after a wait for writes that did not come the next group does not wait for those that were answered", () =>
    Effect.gen(function* () {
      const { groups, submit, answer } = yield* setup({ maxBatchWaitMillis: 100 })
      const fibers = yield* Effect.forEach(["a", "b"], submit)
      yield* TestClock.adjust("1 second")
      yield* answer(0)
      // By the true time, which passes while the test waits. Had there been no wait, the next group would have one.
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

  it.scoped("where commits take no time, or no caller was answered yet, no group waits", () =>
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

  it.scoped("above the limit of waiting writes the next is refused at once, until a commit", () =>
    Effect.gen(function* () {
      const { submit, answer } = yield* setup({ maxWaiting: 2 })
      const fibers = yield* Effect.forEach(["a", "b", "c", "d"], submit)
      expect(tagOf(yield* Fiber.join(fibers[3]!))).toBe("StoreBusy")
      yield* answer(0)
      yield* answer(1)
      const last = yield* submit("e")
      yield* answer(2)
      expect(yield* joinAll([...fibers, last])).toEqual(["done a", "done b", "done c", "StoreBusy", "done e"])
    })
  )

  it.scoped("above the limit of waiting bytes the next is refused, but one of any size may wait alone", () =>
    Effect.gen(function* () {
      const { submit, answer } = yield* setup({ maxWaitingBytes: 4 })
      const fibers = yield* Effect.forEach(["a", "enormous", "b"], submit)
      yield* answer(0)
      yield* answer(1)
      expect(yield* joinAll(fibers)).toEqual(["done a", "done enormous", "StoreBusy"])
    })
  )

  it.scoped("an interrupted waiting write is withdrawn, and makes room for others", () =>
    Effect.gen(function* () {
      const { groups, submit, answer } = yield* setup({ maxWaiting: 1 })
      const first = yield* submit("a")
      const second = yield* submit("b")
      yield* Fiber.interrupt(second)
      const third = yield* submit("c")
      yield* answer(0)
      yield* answer(1)
      expect(yield* joinAll([first, third])).toEqual(["done a", "done c"])
      expect(groups).toEqual([["a"], ["c"]])
    })
  )

  it.scoped("an interrupted caller of a write in flight does not wait, and the write continues", () =>
    Effect.gen(function* () {
      const { groups, submit, answer } = yield* setup()
      const first = yield* submit("a")
      yield* Fiber.interrupt(first)
      const second = yield* submit("b")
      expect(groups).toEqual([["a"]])
      yield* answer(0)
      yield* answer(1)
      expect(yield* joinAll([second])).toEqual(["done b"])
    })
  )

  it.scoped("a hanging group fails all writes until it is answered", () =>
    Effect.gen(function* () {
      const { groups, committer, submit, answer } = yield* setup()
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
      const later = yield* submit("d")
      yield* answer(1)
      expect(yield* joinAll([later])).toEqual(["done d"])
      expect(groups).toEqual([["a"], ["d"]])
    })
  )

  for (const [when, after] of [
    ["at its beginning", (stand: () => void) => stand()],
    ["later", (stand: () => void) => void setImmediate(stand)]
  ] as const) {
    it.scopedLive(`an answer is taken that came while the process stood still, ${when} for longer than the limit`, () =>
      Effect.gen(function* () {
        const { port1, port2 } = new MessageChannel()
        yield* Effect.addFinalizer(() => Effect.sync(() => port1.close()))
        // As a thread does that writes a database: the answer is there before the process goes on.
        const standStill = () => {
          port1.postMessage("done")
          const end = performance.now() + 100
          while (performance.now() < end);
        }
        const commit = (group: ReadonlyArray<Write>) =>
          Effect.async<ReadonlyArray<Either.Either<string>>>(resume => {
            port2.once("message", () => resume(Effect.succeed(group.map(write => Either.right(`done ${write}`)))))
            after(standStill)
          })
        const committer = yield* GroupCommit.make<Write, string>({ commit, weigh, patience: "50 millis" })
        expect(yield* committer.submit("a")).toBe("done a")
      })
    )
  }

  it.scoped("each group has its own time limit", () =>
    Effect.gen(function* () {
      const { committer, submit, answer } = yield* setup()
      for (let index = 0; index < 3; index++) {
        const fiber = yield* submit(`w${index}`)
        yield* TestClock.adjust("1700 millis")
        yield* answer(index)
        expect(yield* joinAll([fiber])).toEqual([`done w${index}`])
      }
      const last = yield* submit("last")
      yield* TestClock.adjust("1800 millis")
      expect(yield* joinAll([last])).toEqual(["StoreUnavailable"])
      expect(committer.isStuck()).toBe(true)
      yield* answer(3)
    })
  )

  it.scoped("a write that is heavier than a group has as much longer; those that wait have not", () =>
    Effect.gen(function* () {
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
  )

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

  it.effect("closing the scope answers each write, also where the groups take longer than its limit together", () =>
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

  it.scoped("without a fiber a caller is answered once, and not after its interruption", () =>
    Effect.gen(function* () {
      const { committer, groups, answer } = yield* setup({ maxWaiting: 2 })
      const told: Array<string> = []
      const submit = (write: Write) =>
        unforked(committer.submit(write), exit =>
          told.push(
            `${write}: ${Exit.isSuccess(exit) ? exit.value : tagOf(Either.left(Cause.squash(exit.cause) as Tagged))}`
          )
        )
      submit("a")
      yield* settled
      const leaveFlight = submit("b")
      const leaveQueue = submit("c")
      submit("refused")
      expect(told).toEqual(["refused: StoreBusy"])
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
      expect(told).toEqual(["refused: StoreBusy", "a: done a", "d: done d", "bad: refused bad"])
      expect(groups).toEqual([["a"], ["b", "d"], ["bad"]])
    })
  )

  it.scoped("a callback may commit the next write at once, and one that throws does not affect others", () =>
    Effect.gen(function* () {
      const { committer, groups, answer } = yield* setup()
      const told: Array<string> = []
      const follow = (write: Write) => unforked(committer.submit(write), () => told.push(write))
      unforked(committer.submit("a"), () => {
        follow("next")
        throw new Error("a bug of the caller")
      })
      follow("b")
      yield* answer(0)
      yield* answer(1)
      yield* settled
      expect(told).toEqual(["b", "next"])
      expect(groups).toEqual([["a", "b"], ["next"]])
    }).pipe(Effect.provide(Logger.remove(Logger.defaultLogger)))
  )

  it.scoped("interrupted writes make room, however many wait", () =>
    Effect.gen(function* () {
      const { committer, groups, answer } = yield* setup({ maxWaiting: 100, maxWaitingBytes: 1000 })
      yield* Effect.sync(() => unforked(committer.submit("first"), () => undefined))
      yield* settled
      const told: Array<Write> = []
      const stay: Array<Write> = []
      const leaves: Array<() => void> = []
      for (let index = 0; index < 1000; index++) {
        const write = `w${index}`
        const leave = unforked(committer.submit(write), exit => told.push(Exit.isSuccess(exit) ? write : "busy"))
        if (index % 20 === 0) stay.push(write)
        else leaves.push(leave)
        if (leaves.length > 40) for (const leave of leaves.splice(0)) leave()
      }
      for (const leave of leaves) leave()
      expect(told).toEqual([])
      yield* answer(0)
      yield* answer(1)
      yield* settled
      expect(told).toEqual(stay)
      expect(groups).toEqual([["first"], stay])
    })
  )

  it("a write is in one group at most, in order, and its caller gets its outcome", async () => {
    const action = fc.constantFrom<Action>("submit", "submit", "interrupt", "answer", "fail")
    await fc.assert(
      fc.asyncProperty(fc.array(action, { maxLength: 60 }), actions =>
        Effect.runPromise(Effect.provide(Effect.scoped(play(actions)), TestContext.TestContext))
      ),
      { numRuns: 50 * Number(process.env.SOAK ?? 1) }
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
      const write = `w${index}`
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
      expect(tagOf(yield* Fiber.join(fiber))).toBe(failed.has(write) ? "StoreUnavailable" : `done ${write}`)
    }
  })
