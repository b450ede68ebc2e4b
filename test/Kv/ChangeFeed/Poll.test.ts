import { describe, expect } from "@effect/vitest"
import { Duration, Effect, Fiber, TestClock } from "effect"
import { DrainingSignal } from "../../../src/Http/DrainingSignal.ts"
import { ChangeFeed, type Page } from "../../../src/Kv/ChangeFeed.ts"
import { type Body, check, epochNow, Probe, put, query, seqsOf, untilFollowers } from "./Harness.ts"

const minute = Duration.seconds(60)

const bodyOf = (page: Page): Omit<Body, "epoch"> => ({
  changes: JSON.parse(page.changes) as Body["changes"],
  lastSeq: page.lastSeq
})

const poll = (after: number, tenant = "", wait = Duration.zero, limit = 100) =>
  Effect.gen(function* () {
    const feed = yield* ChangeFeed
    return bodyOf(yield* feed.poll(query(after, tenant, limit), wait))
  })

describe("ChangeFeed.poll", () => {
  check("refuses a reader that knows another log, however far the log has come", function* () {
    const feed = yield* ChangeFeed
    const probe = yield* Probe
    yield* put("a", 1, 2)
    const old = yield* epochNow
    const ask = (after: number, epoch: string, wait = Duration.zero) => feed.poll(query(after, "", 100, epoch), wait)
    expect(bodyOf(yield* ask(0, old))).toMatchObject({ lastSeq: 2 })
    for (const after of [0, 2, 9]) {
      expect(yield* Effect.flip(ask(after, "other", minute))).toMatchObject({ _tag: "LogReplaced", epoch: old })
    }
    yield* probe.restore
    yield* put("a", 1, 2, 3, 4)
    const epoch = yield* epochNow
    expect(yield* Effect.flip(ask(2, old))).toMatchObject({ _tag: "LogReplaced", epoch })
    probe.trimmedSeq = 3
    expect(yield* Effect.flip(ask(2, old))).toMatchObject({ _tag: "LogReplaced", epoch })
    expect(yield* Effect.flip(ask(2, epoch))).toMatchObject({ _tag: "HistoryTrimmed" })
  })

  check("answers at once with existing changes, or with none without `wait`", function* () {
    yield* put("a", { n: 1 }, "two")
    expect(yield* poll(0, "", minute)).toMatchObject({
      changes: [
        { seq: 1, op: "set", namespace: "tenant:a/a", key: "k0", value: { n: 1 }, version: 1, actor: "test" },
        { seq: 2, value: "two", tenantId: "a" }
      ],
      lastSeq: 2
    })
    expect(yield* poll(2)).toEqual({ changes: [], lastSeq: 2 })
    expect(seqsOf(yield* poll(0, "", minute, 1))).toEqual([1])
  })

  check("waits for the first change that matches", function* () {
    yield* put("a", 1)
    const waiting = yield* Effect.fork(poll(1, "b", minute))
    yield* untilFollowers(1)
    yield* put("a", 2, 3)
    yield* put("b", 4)
    expect(yield* Fiber.join(waiting)).toMatchObject({ changes: [{ seq: 4, tenantId: "b" }], lastSeq: 4 })
    yield* untilFollowers(0)
  })

  check("answers after the wait with the last scanned seq, and scans nothing twice", function* () {
    const probe = yield* Probe
    const waiting = yield* Effect.fork(poll(0, "b", Duration.seconds(5)))
    yield* untilFollowers(1)
    yield* put("a", 1, 2, 3)
    yield* TestClock.adjust("4999 millis")
    expect(yield* Fiber.poll(waiting)).toMatchObject({ _tag: "None" })
    yield* TestClock.adjust("1 millis")
    expect(yield* Fiber.join(waiting)).toEqual({ changes: [], lastSeq: 3 })
    expect(probe.reads).toBe(2)
  })

  check("reports a log that ends before `after` at once", function* () {
    yield* put("a", 1, 2)
    expect(yield* poll(1_000_000, "", minute)).toEqual({ changes: [], lastSeq: 2 })
  })

  check("ends when the service drains, and does not wait then", function* () {
    const draining = yield* DrainingSignal
    const waiting = yield* Effect.fork(poll(0, "", minute))
    yield* untilFollowers(1)
    yield* draining.begin
    expect(yield* Fiber.join(waiting)).toEqual({ changes: [], lastSeq: 0 })
    expect(yield* poll(0, "", minute)).toEqual({ changes: [], lastSeq: 0 })
  })

  check("fails if the history is trimmed or the store is unavailable, before the wait and during it", function* () {
    const probe = yield* Probe
    yield* put("a", 1, 2, 3)
    const waiting = yield* Effect.fork(poll(3, "", minute))
    yield* untilFollowers(1)
    probe.isUnavailable = true
    yield* put("a", 4)
    expect(yield* Effect.flip(Fiber.join(waiting))).toMatchObject({ _tag: "StoreUnavailable" })
    expect(yield* Effect.flip(poll(0))).toMatchObject({ _tag: "StoreUnavailable" })
    probe.isUnavailable = false
    probe.trimmedSeq = 2
    expect(yield* Effect.flip(poll(1, "", minute))).toMatchObject({ _tag: "HistoryTrimmed", trimmedSeq: 2 })
  })

  check(
    "limits the number of waiters, and releases the slot of an interrupted one",
    function* () {
      const waiting = yield* Effect.fork(poll(0, "", minute))
      yield* untilFollowers(1)
      expect(yield* Effect.flip(poll(0, "", minute))).toMatchObject({ _tag: "FeedBusy" })
      expect(yield* poll(0)).toEqual({ changes: [], lastSeq: 0 })
      yield* Fiber.interrupt(waiting)
      yield* untilFollowers(0)
    },
    { followers: 1 }
  )
})
