import { describe, expect, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Layer, type Scope, TestClock } from "effect"
import * as Direct from "../../../src/base/Direct.ts"
import { JsonText } from "../../../src/base/Json/JsonText.ts"
import { type DrainingSignal, layer } from "../../../src/Http/DrainingSignal.ts"
import type { Connection } from "../../../src/Http/WebSocket.ts"
import * as Change from "../../../src/Kv/Change.ts"
import { Follower } from "../../../src/Kv/ChangeFeed/Follower.ts"
import { FollowerSet } from "../../../src/Kv/ChangeFeed/FollowerSet.ts"
import * as LogWaiters from "../../../src/Kv/ChangeFeed/LogWaiters.ts"
import * as Pages from "../../../src/Kv/ChangeFeed/Pages.ts"
import { Page } from "../../../src/Kv/ChangeFeed/Pages.ts"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import type { Steps } from "../../suites/Steps.ts"
import { change, check, Probe, put, query, quietLog } from "./Harness.ts"

/** A log that has grown to this seq, and does not grow further. It may report its growth only sometimes. */
const grown = (lastSeq: number, isReported = () => true) =>
  Layer.succeed(ChangeLog, {
    ...quietLog,
    awaitPast: seq => Direct.suspend(() => (seq < lastSeq && isReported() ? Exit.void : Effect.never))
  })

const never = Number.POSITIVE_INFINITY

/** Waiters over the log of the harness, and what a test does with them. */
const waiting = Effect.gen(function* () {
  const pages = yield* Pages.make
  const waiters = yield* LogWaiters.make(pages)
  yield* pages.fresh(query())
  /** Waits with a position of the present log. */
  const fork = (of: LogWaiters.Reader, deadline = never) => {
    of.position = { ...of.position, epoch: pages.epoch()! }
    return Effect.zipLeft(Effect.fork(waiters.wait(of, deadline)), settle)
  }
  return { pages, fork }
})

const reader = (tenant: string, after = 0, epoch = ""): LogWaiters.Reader => ({
  query: query(after, tenant),
  position: { epoch, after }
})

const settle = Effect.repeatN(Effect.yieldNow(), 100)

const isWaiting = <A>(fiber: Fiber.RuntimeFiber<A>): Effect.Effect<boolean> =>
  Effect.map(Fiber.poll(fiber), ({ _tag }) => _tag === "None")

/** Pages of a log whose state the test sets. None arrives unless `next` is given. */
const pagesOf = (log: { readonly epoch: string; readonly end: number }, next: Effect.Effect<Page> = Effect.never) => ({
  fresh: () => Effect.never,
  next: () => next,
  end: () => log.end,
  epoch: () => log.epoch
})

/** A page with the change, which ends at `lastSeq`. */
const pageOf = (lastSeq: number, epoch: string) => Page.of({ changes: [change(1)], lastSeq, epoch, isComplete: false })

/** Registers a test over a log. */
const over = (
  log: Layer.Layer<ChangeLog>,
  title: string,
  body: () => Steps<ChangeLog | DrainingSignal | Scope.Scope>
) => it.scoped(title, () => Effect.provide(Effect.gen(body), Layer.merge(log, layer)))

describe("LogWaiters", () => {
  over(grown(1), "a waiter that arrives during another's read is woken, too", function* () {
    const log = { epoch: "e", end: 0 }
    const waiters = yield* LogWaiters.make(pagesOf(log, Effect.succeed(pageOf(1, "e"))))
    yield* Effect.yieldNow()
    const waiting = Effect.runFork(waiters.wait(reader("", 0, "e"), never))
    log.end = 1
    expect(yield* Fiber.join(waiting)).toBe("grown")
  })

  over(grown(1), "a replaced log wakes all waiters, also those without changes", function* () {
    const log = { epoch: "old", end: 0 }
    const replaced = Effect.sync(() => {
      Object.assign(log, { epoch: "new", end: 1 })
      return pageOf(1, "new")
    })
    const waiters = yield* LogWaiters.make(pagesOf(log, replaced))
    yield* Effect.yieldNow()
    const other = reader("b", 0, "old")
    expect(yield* waiters.wait(other, never)).toBe("grown")
    expect(other.position.after).toBe(0)
  })

  for (const [what, epoch, end] of [
    ["an epoch", "new", 4],
    ["an end before that of the former one", "old", 4],
    ["an epoch, and has grown beyond the former one", "new", 12],
    ["an epoch and the same end", "new", 10]
  ] as const) {
    over(
      grown(0),
      `a waiter of a replaced log with ${what} is not advanced by the scan of the former one`,
      function* () {
        const log = { epoch: "old", end: 10 }
        const waiters = yield* LogWaiters.make(pagesOf(log))
        const former = reader("b", 10, "old")
        const waiting = yield* Effect.fork(waiters.wait(former, never))
        yield* settle
        Object.assign(log, { epoch, end })
        const later = reader("b", end, epoch)
        const ofNewLog = yield* Effect.fork(waiters.wait(later, never))
        expect(yield* Fiber.join(waiting)).toBe("grown")
        expect(former.position.after).toBe(10)
        // One that comes late does not wait in the new log.
        const late = reader("b", 10, "old")
        expect(yield* waiters.wait(late, never)).toBe("grown")
        expect(late.position.after).toBe(10)
        yield* settle
        yield* Fiber.interrupt(ofNewLog)
        expect(later.position.after).toBe(end)
      }
    )
  }

  for (const [whose, lastSeq, epoch] of [
    ["former", 11, "old"],
    ["new", 4, "new"]
  ] as const) {
    over(
      grown(11),
      `a read for the scan of a replaced log concerns none of the new one: a page of the ${whose}`,
      function* () {
        const log = { epoch: "old", end: 10 }
        const isReading = yield* Deferred.make<void>()
        const page = yield* Deferred.make<Page>()
        let reads = 0
        const read = Effect.suspend(() => {
          if (reads++ > 0) return Effect.never
          return Effect.zipRight(Deferred.succeed(isReading, undefined), Deferred.await(page))
        })
        const waiters = yield* LogWaiters.make(pagesOf(log, read))
        const waiting = yield* Effect.fork(waiters.wait(reader("b", 10, "old"), never))
        yield* Deferred.await(isReading)
        Object.assign(log, { epoch: "new", end: 4 })
        const later = reader("b", 4, "new")
        const ofNewLog = yield* Effect.fork(waiters.wait(later, never))
        expect(yield* Fiber.join(waiting)).toBe("grown")
        yield* Deferred.succeed(page, pageOf(lastSeq, epoch))
        yield* settle
        expect(yield* isWaiting(ofNewLog)).toBe(true)
        yield* Fiber.interrupt(ofNewLog)
        expect(later.position.after).toBe(4)
      }
    )
  }

  let waits = 0
  const grownOnce = grown(11, () => waits++ === 0)

  over(grownOnce, "a log that is replaced during the pause after a spurious wake-up wakes its waiters", function* () {
    const log = { epoch: "old", end: 10 }
    const isRead = yield* Deferred.make<void>()
    const read = Effect.as(Deferred.succeed(isRead, undefined), Page.empty(10, "old"))
    const waiters = yield* LogWaiters.make(pagesOf(log, read))
    const waiting = yield* Effect.fork(waiters.wait(reader("b", 10, "old"), never))
    yield* Deferred.await(isRead)
    yield* settle
    expect(yield* isWaiting(waiting)).toBe(true)
    Object.assign(log, { epoch: "new", end: 12 })
    yield* TestClock.adjust(LogWaiters.spuriousWakeupPause)
    expect(yield* Fiber.join(waiting)).toBe("grown")
  })

  check("a commit wakes only those that wait for its tenant", function* () {
    const { fork } = yield* waiting
    const [own, all, other] = [reader("a"), reader(""), reader("b")]
    const fibers = [yield* fork(own), yield* fork(all), yield* fork(other)] as const
    yield* put("a", 1)
    yield* settle
    expect(yield* Fiber.join(fibers[0])).toBe("grown")
    expect(yield* Fiber.join(fibers[1])).toBe("grown")
    expect([own.position.after, all.position.after]).toEqual([0, 0])
    expect(yield* isWaiting(fibers[2])).toBe(true)
    yield* put("a", 2, 3)
    yield* settle
    expect(yield* isWaiting(fibers[2])).toBe(true)
    yield* put("b", 4)
    expect(yield* Fiber.join(fibers[2])).toBe("grown")
    expect(other.position.after).toBe(3)
  })

  check("costs one read for each commit, however many wait", function* () {
    const probe = yield* Probe
    const { fork } = yield* waiting
    const fibers = yield* Effect.forEach(Array.from({ length: 200 }), (_, i) => fork(reader(`t${i % 20}`)))
    const before = probe.reads
    for (let seq = 1; seq <= 5; seq++) {
      yield* put("a", seq)
      yield* settle
    }
    expect(probe.reads - before).toBe(5)
    expect(yield* Effect.forEach(fibers, isWaiting)).not.toContain(false)
  })

  check("says at the deadline and after an interruption how far the log was scanned", function* () {
    const { fork } = yield* waiting
    const [timed, interrupted] = [reader("b"), reader("b")]
    const deadline = yield* fork(timed, 5000)
    const fiber = yield* fork(interrupted)
    yield* put("a", 1, 2, 3)
    yield* settle
    yield* TestClock.adjust("5 seconds")
    expect(yield* Fiber.join(deadline)).toBe("deadline")
    expect(timed.position.after).toBe(3)
    yield* Fiber.interrupt(fiber)
    expect(interrupted.position.after).toBe(3)
  })

  check("a reader that has read further by itself is not woken for what it has seen", function* () {
    const probe = yield* Probe
    const { fork, pages } = yield* waiting
    const first = yield* fork(reader("b"))
    yield* put("a", 1, 2)
    yield* pages.fresh(query(0))
    const ahead = reader("a", 2)
    const fiber = yield* fork(ahead)
    yield* put("b", 3)
    yield* Fiber.join(first)
    yield* settle
    expect(yield* isWaiting(fiber)).toBe(true)
    yield* put("a", 4)
    expect(yield* Fiber.join(fiber)).toBe("grown")
    expect(ahead.position.after).toBe(3)
    expect(probe.reads).toBeGreaterThan(0)
  })

  check("wakes all if the log cannot be read, was trimmed or was reset", function* () {
    const probe = yield* Probe
    const { fork, pages } = yield* waiting
    yield* put("a", 1, 2, 3)
    yield* pages.fresh(query(0))
    const readers = () => Effect.all([fork(reader("b", pages.end())), fork(reader("", pages.end()))])
    const woken = (fibers: ReadonlyArray<Fiber.RuntimeFiber<LogWaiters.WakeReason>>) =>
      Effect.forEach(fibers, Fiber.join)
    const duringOutage = yield* readers()
    probe.isUnavailable = true
    yield* put("a", 4)
    expect(yield* woken(duringOutage)).toEqual(["grown", "grown"])
    probe.isUnavailable = false
    yield* pages.fresh(query(3))
    const beforeTrim = yield* readers()
    probe.trimmedSeq = 99
    yield* put("a", 5)
    expect(yield* woken(beforeTrim)).toEqual(["grown", "grown"])
    probe.trimmedSeq = 0
    yield* pages.fresh(query(4))
    const beforeReset = yield* readers()
    yield* probe.restore
    yield* put("a", 1)
    yield* pages.fresh(query(5))
    const late = yield* fork(reader("a", 1))
    expect(yield* woken(beforeReset)).toEqual(["grown", "grown"])
    yield* put("a", 2)
    expect(yield* Fiber.join(late)).toBe("grown")
  })
})

const namespace = "tenant:a/n"

const record = (seq: number) =>
  Change.encode({
    ...{ seq, op: "set", namespace, key: "k", value: JsonText("1"), version: seq },
    ...{ actor: "tester", timestamp: 0 }
  })

/** A page of the records after one `seq`, up to another one. */
const page = (after: number, lastSeq: number) =>
  Page.of({
    changes: Array.from({ length: lastSeq - after }, (_, index) => record(after + 1 + index)),
    ...{ lastSeq, epoch: "e", isComplete: false }
  })

/** Followers of a log, and its end as far as it is known. */
const setup = () => {
  const log = { end: 0 }
  const set = new FollowerSet(
    () => log.end,
    () => 0,
    () => {},
    () => {},
    undefined
  )
  /** Adds a follower, whose first page ends at the end of the log. Returns what it is sent. */
  const follow = (after: number, tenant = "") => {
    const sent: Array<number> = []
    const connection = {
      ...{ isOpen: true, hasRoom: true },
      sendFrame: (frame: Buffer) => {
        for (const [, seq] of frame.toString("latin1").matchAll(/"seq":(\d+)/g)) sent.push(Number(seq))
      }
    } as unknown as Connection
    new Follower(connection, set, query(after, tenant), page(after, log.end)).onOpen()
    return sent
  }
  return { log, set, follow }
}

describe("followers of the log", () => {
  it("receive each change once, if they come after the log has grown and before it is read for the others", () => {
    const { follow, log, set } = setup()
    log.end = 3
    const first = follow(1)
    log.end = 5
    const [second, third] = [follow(3), follow(5)]
    expect([first, second, third]).toEqual([[2, 3], [4, 5], []])
    // The page is as old as the first of the two.
    set.advance(page(3, 4), 3)
    expect([first, second, third]).toEqual([[2, 3, 4], [4, 5], []])
    set.advance(page(4, 7), 4)
    expect([first, second, third]).toEqual([
      [2, 3, 4, 5, 6, 7],
      [4, 5, 6, 7],
      [6, 7]
    ])
    set.advance(page(7, 8), 7)
    expect([first, second, third].map(sent => sent.at(-1))).toEqual([8, 8, 8])
  })
})
