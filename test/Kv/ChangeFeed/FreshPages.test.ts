import { describe, expect, it } from "@effect/vitest"
import { type Context, Effect, Fiber, TestClock } from "effect"
import * as Monotonic from "../../../src/base/Time/Monotonic.ts"
import * as Pages from "../../../src/Kv/ChangeFeed/Pages.ts"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { StoreUnavailable } from "../../../src/Kv/Store.ts"
import { test } from "../../Tests.ts"
import { quietLog } from "./Harness.ts"

/** A log of numbers, which counts its reads. */
const numbers = () => {
  const state = { end: 3, history: 1, reads: 0, isUnavailable: false, onRead: () => {} }
  const history = Effect.suspend(() =>
    state.isUnavailable ? new StoreUnavailable({ reason: "unavailable" }) : Effect.succeed(state.history)
  )
  const read = ({ after, limit }: { readonly after: number; readonly limit: number }) =>
    Effect.sync(() => {
      state.reads++
      state.onRead()
      const count = Math.max(0, Math.min(limit, state.end - after))
      const changes = Array.from({ length: count }, (_, index) => {
        const seq = after + index + 1
        return { json: `${state.history}.${seq}`, seq, tenant: "", namespace: "", key: "" }
      })
      return { changes, lastSeq: count === 0 ? state.end : after + count, epoch: "e", isComplete: count === limit }
    })
  const make = Effect.provideService(Pages.make, ChangeLog, {
    ...quietLog,
    read,
    history
  })
  return { make, state }
}

const query = { after: 0, limit: 2, tenant: "" }

const noAnswer = new StoreUnavailable({ reason: "no answer" })

/** A log whose history and pages take as long as a test says. */
const slow = (log: Pick<Context.Tag.Service<ChangeLog>, "history" | "read">) =>
  Effect.provideService(Pages.make, ChangeLog, { ...quietLog, ...log })

const empty = { changes: [], lastSeq: 0, epoch: "e", isComplete: false }

/** Starts the read of a page. Returns its outcome and how long it took, in milliseconds. */
const timed = (pages: Pages.Pages) =>
  Effect.gen(function* () {
    const startedAt = yield* Monotonic.millis
    const { _tag } = yield* Effect.either(pages.fresh(query))
    return [_tag, (yield* Monotonic.millis) - startedAt]
  })

describe("fresh pages", () => {
  test.scoped("keep a complete page that was asked for twice, and read other pages each time", function* () {
    const { make, state } = numbers()
    const pages = yield* make
    yield* pages.fresh(query)
    const full = yield* pages.fresh(query)
    expect([full.answer, full.changes, full.count]).toEqual(['{"changes":[1.1,1.2],"lastSeq":2}', "[1.1,1.2]", 2])
    expect(yield* pages.fresh(query)).toBe(full)
    expect(state.reads).toBe(2)
    expect((yield* pages.fresh({ ...query, after: 2 })).answer).toBe('{"changes":[1.3],"lastSeq":3}')
    state.end = 9
    expect((yield* pages.fresh({ ...query, after: 2 })).answer).toBe('{"changes":[1.3,1.4],"lastSeq":4}')
    expect((yield* pages.fresh({ ...query, limit: 3 })).answer).toBe('{"changes":[1.1,1.2,1.3],"lastSeq":3}')
    expect(pages.end()).toBe(4)
  })

  test.scoped("do not answer from before a reset of the history", function* () {
    const { make, state } = numbers()
    const pages = yield* make
    yield* pages.fresh(query)
    yield* pages.fresh(query)
    state.history = 2
    expect((yield* pages.fresh(query)).changes).toBe("[2.1,2.2]")
    // The history changes while a page is read: the page may belong to either.
    state.history = 3
    state.onRead = () => {
      state.history = 4
    }
    yield* pages.fresh(query)
    state.onRead = () => {}
    const reads = state.reads
    yield* pages.fresh(query)
    expect(state.reads).toBe(reads + 1)
  })

  test.scoped("do not send a replaced history to followers, even if the log is longer", function* () {
    const { make, state } = numbers()
    const pages = yield* make
    const numberIn = (page: { readonly changes: string }) => page.changes.match(/(\d+)\./)?.[1]
    expect(numberIn(yield* pages.next(query))).toBe("1")
    state.history = 2
    state.end = 100
    expect(numberIn(yield* pages.next(query))).toBe("2")
  })

  test.scoped("fail while the log is unavailable, whatever is cached", function* () {
    const { make, state } = numbers()
    const pages = yield* make
    yield* pages.fresh(query)
    yield* pages.fresh(query)
    state.isUnavailable = true
    expect(yield* Effect.flip(pages.fresh(query))).toMatchObject({ reason: "unavailable" })
    state.isUnavailable = false
    expect((yield* pages.fresh(query)).count).toBe(2)
  })

  test.scoped(
    "fail within two seconds while reads get no answer, also for readers that come during a read",
    function* () {
      const pages = yield* slow({ read: () => Effect.delay(noAnswer, "1900 millis"), history: Effect.succeed(1) })
      const reading: Array<Fiber.Fiber<unknown>> = []
      for (let n = 0; n < 12; n++) {
        reading.push(yield* Effect.fork(timed(pages)))
        yield* TestClock.adjust("400 millis")
      }
      yield* TestClock.adjust("1600 millis")
      expect(yield* Fiber.join(Fiber.all(reading))).toEqual(reading.map(() => ["Left", 1900]))
    }
  )

  it.scoped.each([
    ["the page, after a slow read of the history", "1800 millis", Effect.delay(noAnswer, "1900 millis")],
    ["the history, which is read again after the page", "1 second", Effect.delay(Effect.succeed(empty), "800 millis")]
  ] as const)("fail within two seconds in all if the store does not answer any more: %s", ([, first, read]) =>
    Effect.gen(function* () {
      let histories = 0
      const history = Effect.suspend(() =>
        histories++ === 0 ? Effect.delay(Effect.succeed(1), first) : Effect.delay(noAnswer, "1900 millis")
      )
      const pages = yield* slow({ history, read: () => read })
      const reading = yield* Effect.fork(timed(pages))
      yield* TestClock.adjust("10 seconds")
      expect(yield* reading).toEqual(["Left", 1900])
    })
  )

  test.scoped("may take longer if the page is arriving", function* () {
    const startedAt = yield* Monotonic.millis
    const clock = yield* Effect.clock
    const pages = yield* slow({
      history: Effect.delay(Effect.succeed(1), "1 second"),
      read: (_, onSent) =>
        Effect.suspend(() => {
          onSent?.(() => Monotonic.unsafeMillis(clock) - startedAt >= 1500)
          return Effect.delay(Effect.succeed(empty), "4 seconds")
        })
    })
    const reading = yield* Effect.fork(timed(pages))
    yield* TestClock.adjust("10 seconds")
    // The history is read before and after the page.
    expect(yield* reading).toEqual(["Right", 6000])
  })

  test.scoped("have their own limit, also behind a page that is arriving", function* () {
    let reads = 0
    const pages = yield* slow({
      history: Effect.succeed(1),
      read: (_, onSent) =>
        Effect.suspend(() => {
          const isFirst = reads++ === 0
          onSent?.(() => isFirst)
          return Effect.delay(Effect.succeed(empty), isFirst ? "4 seconds" : "1 second")
        })
    })
    const first = yield* Effect.fork(timed(pages))
    yield* TestClock.adjust("500 millis")
    const behind = yield* Effect.fork(timed(pages))
    yield* TestClock.adjust("10 seconds")
    expect(yield* first).toEqual(["Right", 4000])
    expect(yield* behind).toEqual(["Left", 1900])
  })

  test.scoped("stay within the bound", function* () {
    const { make, state } = numbers()
    state.end = 1000
    const pages = yield* make
    for (let after = 0; after < 200; after++) {
      yield* pages.fresh({ ...query, after })
      yield* pages.fresh({ ...query, after })
    }
    yield* pages.fresh({ ...query, after: 199 })
    expect(state.reads).toBe(400)
    yield* pages.fresh(query)
    expect(state.reads).toBe(401)
  })

  test.scoped("forget after a while that a page was asked for", function* () {
    const { make, state } = numbers()
    state.end = 1000
    const pages = yield* make
    for (let after = 0; after < 200; after++) yield* pages.fresh({ ...query, after })
    for (const after of [0, 0, 0, 199, 199]) yield* pages.fresh({ ...query, after })
    expect(state.reads).toBe(203)
  })
})
