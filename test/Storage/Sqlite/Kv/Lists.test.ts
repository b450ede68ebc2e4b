import { expect, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import * as TestClock from "effect/TestClock"
import { yieldToEventLoop } from "../../../../src/EventLoop.ts"
import { Store, StoreBusy } from "../../../../src/Kv/Store.ts"
import * as Limits from "../../../../src/Limits.ts"
import type { Reader } from "../../../../src/Storage/Sqlite/Database/Reader.ts"
import * as Lists from "../../../../src/Storage/Sqlite/Kv/Lists.ts"
import type { Queries } from "../../../../src/Storage/Sqlite/Kv/Queries.ts"
import { put, set, start, write } from "../../../suites/Store/Fixture.ts"
import { temporaryLayer } from "../../SqliteFixture.ts"

const many = 20_500

/** One snapshot at a time. */
const limited = Layer.succeed(Limits.Limits, { ...Limits.defaults, wholeLists: 1 })

it.scoped("a count that takes several iterations has the same snapshot as the page", () =>
  Effect.gen(function* () {
    const store = yield* Store
    yield* TestClock.setTime(start)
    for (let first = 0; first < many; first += 1000) {
      const length = Math.min(1000, many - first)
      yield* write(Array.from({ length }, (_, index) => set("n", `k${first + index}`, 1)))
    }
    yield* put("n", "k-late", 1, { expiresAt: start + 1 })
    yield* TestClock.setTime(start + 1)
    const list = { namespace: "n", prefix: "k", after: "", limit: 2, isCounted: true }
    const [page] = yield* Effect.all([store.list(list), put("n", "k", 1)], { concurrency: "unbounded" })
    // The write may be in the snapshot or not, but then in all of it.
    const isWritten = page.entries[0]?.key === "k"
    expect([page.entries.length, page.more, page.count]).toEqual([2, true, isWritten ? many + 1 : many])
    expect(page.lastSeq).toBe(isWritten ? many + 2 : many + 1)
    const whole = yield* store.list({ ...list, prefix: "" })
    expect([whole.entries.length, whole.count]).toEqual([2, many + 1])
    const part = yield* store.list({ ...list, prefix: "k", start: "k1", end: "k9", isDescending: true })
    const keys = Array.from({ length: many }, (_, index) => `k${index}`).filter(key => key >= "k1" && key < "k9")
    expect([part.entries[0]?.key, part.count]).toEqual(["k8999", keys.length])
  }).pipe(Effect.provide(temporaryLayer("inline")))
)

it.scoped(
  "many entries that have expired are counted with other work in between, and a missing snapshot is reported",
  () =>
    Effect.gen(function* () {
      const store = yield* Store
      yield* TestClock.setTime(start)
      const expired = 9000
      for (let first = 0; first < expired; first += 1000) {
        yield* write(
          Array.from({ length: 1000 }, (_, index) => set("n", `k${first + index}`, 1, { expiresAt: start + 1 }))
        )
      }
      yield* write(["a", "b", "c"].map(key => set("n", key, 1)))
      yield* TestClock.setTime(start + 1)
      let turns = 0
      const others = yield* Effect.fork(Effect.forever(Effect.tap(yieldToEventLoop, () => Effect.sync(() => turns++))))
      for (const part of [{ prefix: "" }, { prefix: "", start: "a", end: "l" }]) {
        const before = turns
        const list = { namespace: "n", after: "", limit: 2, isCounted: true, ...part }
        const page = yield* store.list(list)
        expect([page.entries.length, page.more, page.count]).toEqual([2, true, 3])
        // No more than 4,000 rows are looked at in one iteration.
        expect(turns - before).toBeGreaterThanOrEqual(2)
      }
      yield* Fiber.interrupt(others)

      const list = { namespace: "n", prefix: "", after: "", limit: 2, isCounted: true }
      yield* store.listAll(list)
      expect(yield* Effect.flip(store.list(list))).toBeInstanceOf(StoreBusy)
      expect((yield* store.list({ ...list, isCounted: false })).count).toBeUndefined()
    }).pipe(Effect.provide(Layer.provide(temporaryLayer("inline"), limited)))
)

it.effect("a count that lasts for more than a minute fails", () =>
  Effect.gen(function* () {
    /** A table without end. */
    const queries: Pick<Queries, "inSnapshot" | "entries" | "lastSeq" | "countDue" | "countNames"> = {
      inSnapshot: body => body(),
      entries: () => ({ entries: [], more: true }),
      lastSeq: () => 1,
      countDue: () => 0,
      countNames: () => ({ count: 1, next: "k" })
    }
    let reads = 0
    const reader = {
      read: (body: (queries: unknown, now: number) => unknown) => Effect.sync(() => body(queries, start)),
      snapshots: {
        take: () => Effect.void,
        read: (_: unknown, body: (queries: unknown) => unknown) => {
          reads++
          return Effect.zipRight(
            TestClock.adjust("20 seconds"),
            Effect.sync(() => body(queries))
          )
        }
      }
    } as unknown as Reader<Queries>
    const list = Lists.page(reader, () => "epoch")
    const failure = yield* Effect.flip(list({ namespace: "n", prefix: "", after: "", limit: 2, isCounted: true }))
    expect(failure).toMatchObject({ _tag: "StoreUnavailable", reason: "counting took longer than 60000 ms" })
    expect(reads).toBeLessThan(8)
  })
)
