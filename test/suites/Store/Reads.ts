import { expect } from "@effect/vitest"
import { Effect } from "effect"
import * as TestClock from "effect/TestClock"
import * as Entry from "../../../src/Kv/Entry.ts"
import { type Address, Store } from "../../../src/Kv/Store.ts"
import { type Check, json, put, remove, set, start, write } from "./Fixture.ts"

const addresses = (...names: ReadonlyArray<string>): ReadonlyArray<Address> =>
  names.map(name => ({ namespace: name.split("|")[0]!, key: name.split("|")[1]! }))

const getMany = (wanted: ReadonlyArray<Address>, maxBytes = 1000) =>
  Effect.map(
    Effect.flatMap(Store, store => store.getMany(wanted, maxBytes)),
    ({ entries, ...rest }) => ({ ...rest, entries: entries.map(entry => entry && Entry.decode(entry)) })
  )

/** Several entries at once. */
export const reads = (check: Check) => {
  check("entries are complete and in the order of their addresses, with nothing for absent ones", function* () {
    const wanted = addresses("n|b", "m|😀", "n|absent", "n|a", "n|b", "none|a", 'n|"\u0001')
    expect((yield* getMany(wanted)).entries).toEqual(wanted.map(() => undefined))
    yield* write([set("n", "a", [1]), set("n", "b", "x"), set("m", "😀", null), set("n", '"\u0001', { a: "%s" })])
    yield* remove("n", "a")
    yield* put("n", "a", "again", { expiresAt: start + 1 })
    const store = yield* Store
    const { entries, epoch, lastSeq } = yield* getMany(wanted)
    const single = yield* Effect.forEach(wanted, ({ key, namespace }) => store.get(namespace, key))
    expect(entries).toEqual(single.map(entry => (entry._tag === "Some" ? { ...entry.value } : undefined)))
    expect(entries.map(entry => entry?.version)).toEqual([1, 1, undefined, 3, 1, undefined, 1])
    expect(lastSeq).toBe(6)
    expect(epoch).toBe((yield* store.list({ namespace: "n", prefix: "", after: "", limit: 1 })).epoch)
    yield* TestClock.setTime(start + 1)
    expect((yield* getMany(wanted)).entries[3]).toBeUndefined()
    expect(yield* getMany([])).toEqual({ entries: [], epoch, lastSeq: 6 })
  })

  check("values of more bytes than the caller takes are refused together", function* () {
    yield* write([set("n", "a", "é".repeat(49)), set("n", "b", "x".repeat(98))])
    const both = addresses("n|a", "n|b", "n|absent")
    expect((yield* getMany(both, 200)).entries.map(entry => entry?.value)).toEqual([
      json("é".repeat(49)),
      json("x".repeat(98)),
      undefined
    ])
    const refused = yield* Effect.either(getMany(both, 199))
    expect(refused).toMatchObject({ left: { _tag: "EntriesTooLarge", limitBytes: 199 } })
    const twice = yield* Effect.either(getMany(addresses("n|a", "n|a"), 199))
    expect(twice._tag).toBe("Left")
  })

  check("without values entries are as lists of keys show them, whatever the size of their values", function* () {
    const store = yield* Store
    yield* write([set("n", "a", "x".repeat(500)), set("m", '"\u0001', ',"version":9')])
    yield* put("n", "soon", 1, { expiresAt: start + 1 })
    const keysOf = (...names: ReadonlyArray<string>) =>
      Effect.map(store.getMany(addresses(...names), 0, true), ({ entries }) =>
        entries.map(entry => entry && [entry.key, entry.json])
      )
    const listed = yield* store.list({ namespace: "n", prefix: "", after: "", limit: 9, keysOnly: true })
    const [a, soon] = listed.entries.map(({ json, key }) => [key, json])
    const other = yield* store.list({ namespace: "m", prefix: "", after: "", limit: 9, keysOnly: true })
    expect(yield* keysOf("n|soon", "n|a", "n|absent", "n|a", 'm|"\u0001')).toEqual([
      soon,
      a,
      undefined,
      a,
      ['"\u0001', other.entries[0]!.json]
    ])
    yield* TestClock.setTime(start + 1)
    expect(yield* keysOf("n|soon", "n|a")).toEqual([undefined, a])
    const { epoch, lastSeq } = listed
    expect(yield* store.getMany([], 0, true)).toEqual({ entries: [], epoch, lastSeq })
  })

  check("no read of several entries sees a part of a write", function* () {
    const names = ["a|1", "b|1", "a|2", "c|9"]
    const writer = Effect.forEach(
      Array.from({ length: 40 }, (_, index) => index),
      value => write(addresses(...names).map(({ key, namespace }) => set(namespace, key, value))),
      { discard: true }
    )
    const reader = Effect.replicateEffect(Effect.zipLeft(getMany(addresses(...names)), Effect.yieldNow()), 60)
    const [, seen] = yield* Effect.all([writer, reader], { concurrency: "unbounded" })
    for (const { entries, lastSeq } of seen) {
      expect(new Set(entries.map(entry => entry?.value)).size).toBe(1)
      expect(entries[0]?.version ?? 0).toBe(lastSeq / names.length)
    }
  })
}
