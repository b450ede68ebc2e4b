import { expect } from "@effect/vitest"
import { Option, Stream } from "effect"
import * as TestClock from "effect/TestClock"
import { Store } from "../../../src/Kv/Store.ts"
import { type Check, expireAll, feed, get, keys, lastSeq, list, outline, put, set, start, write } from "./Fixture.ts"

const namespace = "sessions"

/** Entries that run out. */
export const expiry = (check: Check) => {
  check("an entry is present until its expiresAt, and absent to every read from then on", function* () {
    yield* put(namespace, "k", 1, { expiresAt: start + 1000 })
    yield* TestClock.setTime(start + 999)
    expect(Option.getOrThrow(yield* get(namespace, "k")).expiresAt).toBe(start + 1000)
    expect(yield* keys(namespace)).toEqual(["k"])
    yield* TestClock.setTime(start + 1000)
    expect(yield* get(namespace, "k")).toEqual(Option.none())
    expect(yield* list(namespace)).toEqual({ entries: [], lastSeq: 1, more: false })
    const store = yield* Store
    const whole = yield* store.listAll({ namespace, prefix: "" })
    expect([...(yield* Stream.runCollect(whole.portions))].flat()).toEqual([])
    expect(yield* lastSeq).toBe(1)
    // So is one whose time has passed when it is set.
    expect((yield* put(namespace, "late", 1, { expiresAt: start })).results).toMatchObject([{ entry: { version: 1 } }])
    expect(yield* get(namespace, "late")).toEqual(Option.none())
    expect(yield* expireAll).toBe(2)
  })

  check("any number of entries may expire at the same moment", function* () {
    const names = Array.from({ length: 2500 }, (_, index) => `k${index}`)
    for (let first = 0; first < names.length; first += 1000) {
      const part = names.slice(first, first + 1000)
      yield* write(part.map(key => set(namespace, key, 1, { expiresAt: start + 1000 })))
    }
    yield* TestClock.setTime(start + 1000)
    expect(yield* expireAll).toBe(2500)
    const records = yield* feed(2500)
    expect(records.map(change => change.seq)).toEqual(names.map((_, index) => 2501 + index))
    expect(records.map(outline).sort()).toEqual(names.map(key => `delete ${key} 2 expiry`).sort())
  })
}
