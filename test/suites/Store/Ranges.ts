import { expect } from "@effect/vitest"
import { Effect, Stream } from "effect"
import * as TestClock from "effect/TestClock"
import type * as Entry from "../../../src/Kv/Entry.ts"
import { type ListQuery, Store, type WholeListQuery } from "../../../src/Kv/Store.ts"
import { type Check, get, mebibyte, put, set, start as startTime, write } from "./Fixture.ts"

const namespace = "tenant:t1/ranges"

const compare = (a: string, b: string) => Buffer.compare(Buffer.from(a), Buffer.from(b))

const names = [
  "a",
  "a/1",
  "a/2",
  "a/2\u0001",
  "a/😀",
  "a/\uff5e",
  "a0",
  "b",
  "b/1",
  "\uffff",
  "\u{10000}",
  "\u{10ffff}"
]

/** The keys that a query takes, in its order. */
const expected = (query: WholeListQuery, after = ""): ReadonlyArray<string> => {
  const { end = "", isDescending = false, prefix, start = "" } = query
  const sign = isDescending ? -1 : 1
  return names
    .filter(key => key.startsWith(prefix) && compare(key, start) >= 0 && (end === "" || compare(key, end) < 0))
    .filter(key => after === "" || sign * compare(key, after) > 0)
    .sort((a, b) => sign * compare(a, b))
}

const page = (query: Partial<ListQuery>) =>
  Effect.flatMap(Store, store => store.list({ namespace, prefix: "", after: "", limit: 1000, ...query }))

const whole = (query: Partial<WholeListQuery>) =>
  Effect.scoped(
    Effect.gen(function* () {
      const store = yield* Store
      const { portions, ...rest } = yield* store.listAll({ namespace, prefix: "", ...query })
      return { ...rest, entries: [...(yield* Stream.runCollect(portions))].flat() }
    })
  )

const keysOf = ({ entries }: { readonly entries: ReadonlyArray<Entry.EncodedEntry> }) => entries.map(({ key }) => key)

const setAll = write(names.map(key => set(namespace, key, key)))

/** Lists between bounds, in both directions, without values, and counted. */
export const ranges = (check: Check) => {
  check(
    "prefix, start and end select the same keys forward and backward, page by page, whole, and counted",
    function* () {
      yield* setAll
      const texts = ["", "a/2", "a/2\u0001", "a/\uff5e", "c", "\u{10000}"]
      for (const prefix of ["", "a/", "b", "\u{10ffff}", "\ud83d"]) {
        for (const start of texts) {
          for (const end of texts) {
            for (const isDescending of [false, true]) {
              const query = { namespace, prefix, start, end, isDescending, isCounted: true }
              const wanted = prefix.isWellFormed() ? expected(query) : []
              const about = JSON.stringify(query)
              const first = yield* page({ ...query, limit: 3 })
              expect([keysOf(first), first.more, first.count], about).toEqual([
                wanted.slice(0, 3),
                wanted.length > 3,
                wanted.length
              ])
              if (wanted.length === 0) continue
              const after = wanted[1] ?? "a/2"
              const rest = expected(query, after)
              const second = yield* page({ ...query, after, limit: 2 })
              expect([keysOf(second), second.more, second.count], about).toEqual([
                rest.slice(0, 2),
                rest.length > 2,
                wanted.length
              ])
            }
          }
        }
        for (const isDescending of [false, true]) {
          const query = { namespace, prefix, start: "a/2", end: "\u{10000}", isDescending, isCounted: true }
          const wanted = prefix.isWellFormed() ? expected(query) : []
          const all = yield* whole(query)
          expect([keysOf(all), all.count]).toEqual([wanted, wanted.length])
        }
      }
    }
  )

  check("a list without values has all else, and its pages do not end early", function* () {
    const odd = ['quote " and \\', 'a,"version":1', "tab\t", "é\u2028"]
    for (const key of odd) yield* put(namespace, key, { key, value: [',"version":', ',"value":'] })
    for (let index = 0; index < 5; index++) yield* put(namespace, `k${index}`, "x".repeat(mebibyte - 2))
    yield* put(namespace, "k5", 1, { expiresAt: startTime + 1000 })
    const keys = [...odd, "k0", "k1", "k2", "k3", "k4", "k5"].sort(compare)
    const ascending = yield* page({ keysOnly: true })
    expect([keysOf(ascending), ascending.more]).toEqual([keys, false])
    for (const list of [
      ascending,
      yield* page({ keysOnly: true, isDescending: true }),
      yield* whole({ keysOnly: true })
    ]) {
      for (const { json, key } of list.entries) {
        const entry = yield* Effect.flatten(get(namespace, key))
        const { value: _, ...rest } = { ...entry }
        expect(json).toBe(JSON.stringify(rest))
      }
    }
    const after = yield* page({ keysOnly: true, after: "k2", limit: 2 })
    expect([keysOf(after), after.more]).toEqual([["k3", "k4"], true])
  })

  check("a count omits entries that are absent, have expired, or are of another namespace", function* () {
    yield* setAll
    yield* put("tenant:t1/other", "a", 1)
    yield* put(namespace, "a/2", 1, { expiresAt: startTime + 10 })
    yield* put(namespace, "b/1", 1, { expiresAt: startTime + 20 })
    const counts = (query: Partial<WholeListQuery>) =>
      Effect.gen(function* () {
        const counted = { ...query, isCounted: true }
        return [(yield* page({ ...counted, limit: 1 })).count, (yield* whole(counted)).count]
      })
    expect(yield* counts({})).toEqual([12, 12])
    yield* TestClock.setTime(startTime + 10)
    expect(yield* counts({})).toEqual([11, 11])
    expect(yield* counts({ prefix: "a/" })).toEqual([4, 4])
    yield* TestClock.setTime(startTime + 20)
    expect(yield* counts({})).toEqual([10, 10])
    expect(yield* counts({ start: "b", end: "c" })).toEqual([1, 1])
    expect(yield* counts({ prefix: "nothing" })).toEqual([0, 0])
    expect((yield* page({})).count).toBeUndefined()
    expect((yield* whole({})).count).toBeUndefined()
  })

  check("a whole list in reverse, and its count, are of one snapshot", function* () {
    const keys = Array.from({ length: 2100 }, (_, index) => `k${String(index).padStart(4, "0")}`)
    for (let first = 0; first < keys.length; first += 1000) {
      yield* write(keys.slice(first, first + 1000).map(key => set(namespace, key, 1)))
    }
    const store = yield* Store
    const { count, portions } = yield* store.listAll({ namespace, prefix: "k", isDescending: true, isCounted: true })
    yield* write([set(namespace, "k0000a", 1), set(namespace, "k2099a", 1)])
    const seen = [...(yield* Stream.runCollect(portions))].flat()
    expect(seen.map(({ key }) => key)).toEqual(keys.toReversed())
    expect(count).toBe(2100)
  })
}
