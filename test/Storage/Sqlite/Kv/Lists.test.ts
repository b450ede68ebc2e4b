/** Counts and whole lists, which take a snapshot. */

import { statSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Either, Exit, Fiber, Layer, Scope, Stream } from "effect"
import * as TestClock from "effect/TestClock"
import { defaults, Limits } from "../../../../src/base/Limits.ts"
import { yieldToEventLoop } from "../../../../src/base/Time/EventLoop.ts"
import { Store, StoreBusy } from "../../../../src/Kv/Store.ts"
import * as Sqlite from "../../../../src/Storage/Sqlite.ts"
import { put, set, start, write } from "../../../suites/Store/Fixture.ts"
import { sharesOfTenants } from "../../../suites/Store/Lists.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"
import { test } from "../../../Tests.ts"
import { temporaryLayer } from "../../SqliteFixture.ts"

const many = 20_500

/** One snapshot at a time. */
const limited = Layer.succeed(Limits, { ...defaults, wholeLists: 1 })

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

const list = Effect.flatMap(Store, store => store.listAll({ namespace: "n", prefix: "" }))

/** Fills the namespace, so that a list of it has 21 portions. */
const fill = write(Array.from({ length: 20_001 }, (_, index) => set("n", `k${index}`, 1)))

/** Takes the portions one by one, with a pause before each, and says how many came and how it ended. */
const take = (portions: Stream.Stream<unknown, { readonly reason: string }>, pause: string & `${number} seconds`) => {
  let taken = 0
  return portions.pipe(
    Stream.runForEach(() =>
      Effect.suspend(() => {
        taken++
        return TestClock.adjust(pause)
      })
    ),
    Effect.match({ onFailure: ({ reason }) => ({ taken, reason }), onSuccess: () => ({ taken, reason: "read whole" }) })
  )
}

const inStore = <A, E, R>(body: Effect.Effect<A, E, R>) => Effect.provide(body, temporaryLayer("inline"))

describe("whole lists", () => {
  it.scoped("let other work in between portions, though the client takes them at once", () =>
    inStore(
      Effect.gen(function* () {
        yield* fill
        const { portions } = yield* list
        let turns = 0
        const counting = yield* Effect.fork(
          Effect.forever(Effect.tap(yieldToEventLoop, () => Effect.sync(() => turns++)))
        )
        const seen = yield* Stream.runCollect(Stream.map(portions, () => turns))
        yield* Fiber.interrupt(counting)
        // Each portion is read in a separate iteration.
        expect(new Set(seen).size).toBeGreaterThanOrEqual(20)
      })
    )
  )

  it.scoped.each([
    ["are read to their end while the client reads", "40 seconds", 21, "read whole"],
    ["are aborted when nothing is read for a minute", "60 seconds", 1, expect.stringContaining("60 s")],
    // No snapshot is held forever.
    ["are aborted after a quarter of an hour", "50 seconds", 18, expect.stringContaining("900 s")]
  ] as const)("%s", ([, pause, taken, reason]) =>
    inStore(
      Effect.gen(function* () {
        yield* fill
        const { portions } = yield* list
        expect(yield* take(portions, pause)).toEqual({ taken, reason })
      })
    )
  )

  it.scoped("of one tenant leave some for the others", () =>
    sharesOfTenants.pipe(
      Effect.provide(Layer.provide(temporaryLayer("inline"), Layer.succeed(Limits, { ...defaults, wholeLists: 4 })))
    )
  )

  for (const writer of ["inline", "thread"] as const) {
    test.scopedLive(`that overlap do not let the write-ahead log grow without bound (${writer})`, function* () {
      const directory = yield* temporaryDirectory
      const MiB = 1024 * 1024
      const limits = Effect.map(Limits, limits => ({ ...limits, walBytes: 4 * MiB }))
      yield* Effect.gen(function* () {
        yield* write(Array.from({ length: 2001 }, (_, index) => set("n", `k${index}`, 1)))
        const logBytes = () => statSync(join(directory, "kv.db-wal")).size
        // The next list begins before the last one is released, so that there is always one.
        const begin = Effect.flatMap(Scope.make(), scope =>
          Effect.map(Effect.either(Scope.extend(list, scope)), list => ({ scope, list }))
        )
        let last = yield* begin
        let most = 0
        let cut = 0
        let refused = 0
        for (let round = 0; round < 40; round++) {
          yield* put("n", "large", "x".repeat(MiB / 2))
          most = Math.max(most, logBytes())
          const next = yield* begin
          if (Either.isLeft(next.list)) {
            refused++
            expect(next.list.left).toMatchObject({ _tag: "StoreBusy", retryAfterSeconds: 1 })
          }
          if (Either.isRight(last.list)) {
            const read = yield* Effect.either(Stream.runDrain(last.list.right.portions))
            if (Either.isLeft(read)) {
              cut++
              expect(read.left.reason).toContain("the write-ahead log has")
            }
          }
          yield* Scope.close(last.scope, Exit.void)
          last = next
        }
        yield* Scope.close(last.scope, Exit.void)
        expect(most).toBeLessThan(6 * MiB)
        expect(cut + refused).toBeGreaterThan(2)
        expect(cut + refused).toBeLessThan(30)
        const { portions } = yield* list
        expect(yield* Stream.runFold(portions, 0, (sum, { length }) => sum + length)).toBe(2002)
      }).pipe(Effect.provide(Layer.provide(Sqlite.layer({ directory, writer }), Layer.effect(Limits, limits))))
    })
  }
})
