import { expect } from "@effect/vitest"
import { Effect } from "effect"
import * as TestClock from "effect/TestClock"
import { Store } from "../../../src/Kv/Store.ts"
import { type Check, feed, inByteOrder, keys, outline, put, set, start, write } from "./Fixture.ts"

const namespace = "tenant:t1/prefixes"

const removeAll = (prefix: string, limit = 1000) =>
  Effect.map(
    Effect.flatMap(Store, store =>
      store.commit({ operations: [], actor: "remover", prefixDelete: { namespace, prefix, limit } })
    ),
    ({ lastSeq, more, results }) => ({ lastSeq, more, count: results.length })
  )

const setAll = (names: ReadonlyArray<string>) => write(names.map(key => set(namespace, key, 1)))

/** Deletes of a prefix. */
export const prefixDeletes = (check: Check) => {
  check("only the first entries of a prefix are deleted, in key order, with a record each", function* () {
    const names = ["a", "a%", "a/1", "a/2", "a/\uff5e", "a/😀", "a/\u{10ffff}", "a0", "b", "\u{10ffff}"]
    yield* setAll(names)
    yield* put("tenant:t1/other", "a/1", 1)
    yield* put(namespace, "a/2", 2)
    expect(yield* removeAll("a/", 2)).toEqual({ count: 2, more: true, lastSeq: 14 })
    expect((yield* feed(12)).map(outline)).toEqual(["delete a/1 2 remover", "delete a/2 3 remover"])
    expect(yield* removeAll("a/", 3)).toEqual({ count: 3, more: false, lastSeq: 17 })
    const rest = names.filter(name => !name.startsWith("a/"))
    expect(yield* keys(namespace)).toEqual(inByteOrder(rest))
    expect(yield* removeAll("a/")).toEqual({ count: 0, more: false, lastSeq: 17 })
    expect(yield* removeAll("\ud83d")).toEqual({ count: 0, more: false, lastSeq: 17 })
    expect(yield* removeAll("")).toEqual({ count: rest.length, more: false, lastSeq: 17 + rest.length })
    expect(yield* keys("tenant:t1/other")).toEqual(["a/1"])
    const store = yield* Store
    const { namespaces } = yield* store.namespaces({ prefix: "", after: "", limit: 10, tenant: "" })
    expect(namespaces).toEqual([{ namespace: "tenant:t1/other", count: 1 }])
    // Versions continue from those of the deletes.
    yield* put(namespace, "a/2", 3)
    expect((yield* feed(17 + rest.length)).map(outline)).toEqual(["set a/2 4 tester"])
  })

  check("an entry that has expired is not among them", function* () {
    yield* setAll(["a", "c"])
    yield* put(namespace, "b", 1, { expiresAt: start + 10 })
    yield* TestClock.setTime(start + 10)
    expect(yield* removeAll("", 2)).toEqual({ count: 2, more: false, lastSeq: 5 })
    expect((yield* feed(3)).map(outline)).toEqual(["delete a 2 remover", "delete c 2 remover"])
  })

  check(
    "a delete of a prefix is atomic among concurrent writes: each entry is deleted once, and none of an older write is left",
    function* () {
      const names = Array.from({ length: 30 }, (_, index) => `k${String(index).padStart(2, "0")}`)
      const writer = Effect.forEach(
        Array.from({ length: 20 }, (_, index) => index),
        value => Effect.zipRight(write(names.map(key => set(namespace, key, value))), Effect.yieldNow()),
        { discard: true }
      )
      const remover = Effect.replicateEffect(Effect.zipLeft(removeAll("k"), Effect.yieldNow()), 20)
      const [, removed] = yield* Effect.all([writer, remover], { concurrency: "unbounded" })
      // Each write is of all entries, so that a delete finds all of them or none.
      for (const { count, more } of removed) expect([count === 0 || count === 30, more]).toEqual([true, false])
      const records = yield* feed()
      expect(records.map(({ seq }) => seq)).toEqual(records.map((_, index) => index + 1))
      for (let at = 0; at < records.length; at += 30) {
        const part = records.slice(at, at + 30)
        expect(part.map(({ key }) => key)).toEqual(names)
        expect(new Set(part.map(({ op }) => op)).size).toBe(1)
      }
      const deletes = records.filter(({ op }) => op === "delete").length
      expect(deletes).toBe(removed.reduce((sum, { count }) => sum + count, 0))
    }
  )

  check("deletes of prefixes and writes of one group are applied in order", function* () {
    const removed = (prefix: string) => Effect.map(removeAll(prefix), ({ count }) => count)
    const written = (key: string) => Effect.as(put(namespace, key, 1), "written")
    const all: ReadonlyArray<Effect.Effect<string | number, unknown, Store>> = [
      written("a"),
      removed(""),
      written("b"),
      removed("b"),
      written("c")
    ]
    const outcomes = yield* Effect.forEach(all, effect => effect, { concurrency: "unbounded" })
    expect(outcomes).toEqual(["written", 1, "written", 1, "written"])
    expect(yield* keys(namespace)).toEqual(["c"])
    expect((yield* feed()).map(({ op, key }) => `${op} ${key}`)).toEqual([
      "set a",
      "delete a",
      "set b",
      "delete b",
      "set c"
    ])
  })
}
