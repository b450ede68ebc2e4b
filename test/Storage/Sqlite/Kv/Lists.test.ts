import { expect, it } from "@effect/vitest"
import { Effect } from "effect"
import * as TestClock from "effect/TestClock"
import { Store } from "../../../../src/Kv/Store.ts"
import { put, set, start, write } from "../../../suites/Store/Fixture.ts"
import { temporaryLayer } from "../../SqliteFixture.ts"

const many = 20_500

it.scoped("more entries than one iteration counts are counted from one snapshot, in which the page is, too", () =>
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
