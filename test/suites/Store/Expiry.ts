import { expect } from "@effect/vitest"
import { Effect, Option, Stream } from "effect"
import * as TestClock from "effect/TestClock"
import { Store } from "../../../src/Kv/Store.ts"
import {
  type Check,
  del,
  expireAll,
  feed,
  get,
  keys,
  lastSeq,
  list,
  outline,
  put,
  remove,
  set,
  start,
  write
} from "./Fixture.ts"

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
  })

  check("expire turns expired entries into deletes by `expiry`, once", function* () {
    yield* put(namespace, "later", 1, { expiresAt: start + 2000 })
    yield* put(namespace, "k", 1, { expiresAt: start + 1000 })
    yield* put(namespace, "forever", 1)
    expect(yield* expireAll).toBe(0)
    yield* TestClock.setTime(start + 1000)
    expect(yield* expireAll).toBe(1)
    expect(yield* expireAll).toBe(0)
    expect(yield* feed(3)).toEqual([
      {
        seq: 4,
        op: "delete",
        namespace,
        key: "k",
        value: null,
        version: 2,
        actor: "expiry",
        timestamp: start + 1000
      }
    ])
    expect(yield* keys(namespace)).toEqual(["forever", "later"])
    expect((yield* put(namespace, "k", 2)).results).toMatchObject([{ op: "set", entry: { version: 3 } }])
  })

  check("a set of an expired entry records the expiry first", function* () {
    yield* put(namespace, "k", 1, { expiresAt: start + 1000 })
    yield* TestClock.setTime(start + 5000)
    const committed = yield* put(namespace, "k", 2)
    expect(committed).toMatchObject({
      results: [{ op: "set", entry: { version: 3 } }],
      timestamp: start + 5000,
      lastSeq: 3
    })
    expect((yield* feed()).map(outline)).toEqual(["set k 1 tester", "delete k 2 expiry", "set k 3 tester"])
    expect(yield* expireAll).toBe(0)
    expect(Option.getOrThrow(yield* get(namespace, "k"))).toMatchObject({ version: 3, value: "2", expiresAt: null })
  })

  check("a batch over expired entries keeps its own records together", function* () {
    for (const key of ["a", "b"]) yield* put(namespace, key, 1, { expiresAt: start + 1000 })
    yield* TestClock.setTime(start + 1000)
    yield* write([set(namespace, "c", 1), set(namespace, "a", 2), del(namespace, "b"), set(namespace, "b", 2)])
    const after = (yield* feed(2)).map(outline)
    expect(after.slice(0, 2).sort()).toEqual(["delete a 2 expiry", "delete b 2 expiry"])
    expect(after.slice(2)).toEqual(["set c 1 tester", "set a 3 tester", "set b 3 tester"])
  })

  check("a refused batch does not change expired entries", function* () {
    yield* put(namespace, "a", 1, { expiresAt: start + 1000 })
    yield* TestClock.setTime(start + 1000)
    const refused = yield* Effect.flip(
      write([set(namespace, "a", 2), set(namespace, "b", 1, { precondition: { match: "any" } })])
    )
    expect(refused).toMatchObject({ _tag: "PreconditionFailed", index: 1, currentVersion: null })
    expect(yield* lastSeq).toBe(1)
    expect(yield* expireAll).toBe(1)
  })

  check("a set without an expiry removes it, and one with another expiry moves it", function* () {
    for (const key of ["cleared", "later", "sooner"]) yield* put(namespace, key, 1, { expiresAt: start + 1000 })
    yield* put(namespace, "cleared", 2)
    yield* put(namespace, "later", 2, { expiresAt: start + 2000 })
    yield* put(namespace, "sooner", 2, { expiresAt: start + 500 })
    yield* TestClock.setTime(start + 500)
    expect(yield* keys(namespace)).toEqual(["cleared", "later"])
    expect(yield* expireAll).toBe(1)
    yield* TestClock.setTime(start + 1999)
    expect(yield* expireAll).toBe(0)
    expect(yield* keys(namespace)).toEqual(["cleared", "later"])
    yield* TestClock.setTime(start + 2000)
    expect(yield* expireAll).toBe(1)
    expect(yield* keys(namespace)).toEqual(["cleared"])
  })

  check("a delete of an expired entry deletes nothing; the expiry is recorded later", function* () {
    yield* put(namespace, "k", 1, { expiresAt: start + 1000 })
    yield* TestClock.setTime(start + 1000)
    expect((yield* remove(namespace, "k")).results).toEqual([{ op: "delete", deleted: false }])
    expect(yield* lastSeq).toBe(1)
    expect(yield* expireAll).toBe(1)
    expect((yield* feed(1)).map(outline)).toEqual(["delete k 2 expiry"])
  })

  check("an entry that was deleted before its expiry does not expire", function* () {
    yield* put(namespace, "k", 1, { expiresAt: start + 1000 })
    yield* remove(namespace, "k")
    yield* TestClock.setTime(start + 1000)
    expect(yield* expireAll).toBe(0)
    expect(yield* lastSeq).toBe(2)
  })

  check("an expiry in the past makes the entry absent at once", function* () {
    expect((yield* put(namespace, "k", 1, { expiresAt: start })).results).toMatchObject([
      { op: "set", entry: { version: 1 } }
    ])
    expect(yield* get(namespace, "k")).toEqual(Option.none())
    expect(yield* expireAll).toBe(1)
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
