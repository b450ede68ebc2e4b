import { expect } from "@effect/vitest"
import { Effect, Either, Exit, Scope, Stream } from "effect"
import { Store } from "../../../src/Kv/Store.ts"
import {
  type Check,
  feed,
  inByteOrder,
  json,
  keys,
  list,
  listAll,
  mebibyte,
  put,
  remove,
  set,
  sketch,
  write
} from "./Fixture.ts"

const namespace = "tenant:t1/lists"

const setAll = (names: ReadonlyArray<string>, space = namespace) =>
  write(names.map((key, index) => set(space, key, index)))

/** Lists, page by page and whole. */
export const lists = (check: Check) => {
  const literal = "a%b a_b a*b a?b a[b] axb A%b a\\%b a aa é e\u0301 日本 日".split(" ")
  const edges = [
    "\u0001",
    "\u007f",
    "\u0080",
    "\u07ff",
    "\u0800",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\u{10000}",
    "\u{10fffe}",
    "\u{10ffff}"
  ]
  const around = (edge: string) => ["", "a", edge, "\u{10ffff}z"].map(end => edge + end)
  for (const [what, names, prefixes] of [
    ["is literal", literal, [...literal, "", "%", "_", "a*", "a[", "a\\", "e", "日本語"]],
    [
      "may end at any code point",
      edges.flatMap(edge => [...around(edge), `x${edge}`, `x${edge}y`]),
      [...edges.flatMap(edge => [edge, `x${edge}`, `x${edge}\u{10ffff}`]), "", "x", "\u{10ffff}".repeat(3)]
    ]
  ] as const) {
    check(`keys come in byte order of UTF-8, and a prefix ${what}`, function* () {
      yield* setAll(names)
      for (const prefix of prefixes) {
        const expected = inByteOrder(names.filter(name => name.startsWith(prefix)))
        expect(yield* keys(namespace, prefix, 5), prefix).toEqual(expected)
        const whole = yield* listAll({ namespace, prefix })
        const all = [...(yield* Stream.runCollect(whole.portions))].flat()
        const found = all.map(entry => entry.key)
        expect(found, prefix).toEqual(expected)
      }
    })
  }

  check("a page starts after any text, also one with U+0000, which no key contains", function* () {
    const names = inByteOrder(["\u0001", "a", "a\u0001", "a\u0001b", "ab", "b"])
    yield* setAll(names)
    const store = yield* Store
    for (const after of ["\u0000", "a\u0000", "a\u0000z", "a\u0001\u0000", "ab\u0000\u0000", "b\u0000", "c\u0000"]) {
      for (const isDescending of [false, true]) {
        const wanted = (isDescending ? names.toReversed() : names).filter(
          key => Buffer.compare(Buffer.from(key), Buffer.from(after)) * (isDescending ? -1 : 1) > 0
        )
        const { entries } = yield* store.list({ namespace, prefix: "", after, limit: 10, isDescending })
        expect(entries.map(({ key }) => key)).toEqual(wanted)
      }
    }
  })

  check("a page of large values ends early, and a value larger than a page is a page", function* () {
    const names = ["k0", "k1", "k2", "k3", "k4", "k5"]
    for (const key of names) yield* put(namespace, key, "x".repeat(mebibyte - 2))
    const large = "x".repeat(6 * mebibyte)
    yield* put(namespace, "larger", large)
    const page = yield* list(namespace)
    expect([page.entries.map(({ key }) => key), page.more]).toEqual([names.slice(0, 4), true])
    const whole = yield* listAll({ namespace, prefix: "" })
    const portions = [...(yield* Stream.runCollect(whole.portions))]
    expect(portions.flat().map(entry => entry.key)).toEqual([...names, "larger"])
    expect(Math.max(...portions.map(portion => portion.length))).toBeLessThanOrEqual(8)
    const last = yield* list(namespace, { after: "k5" })
    expect(last.entries[0]!.value).toBe(json(large))
    yield* put(namespace, "m", 1)
    const first = yield* list(namespace, { after: "k5" })
    expect([first.entries.map(({ key }) => key), first.more]).toEqual([["larger"], true])
  })

  check("a whole list is of one snapshot, whatever is written while it is read", function* () {
    const names = Array.from({ length: 2500 }, (_, index) => `k${String(index).padStart(4, "0")}`)
    for (let first = 0; first < names.length; first += 1000) yield* setAll(names.slice(first, first + 1000))
    const whole = yield* listAll({ namespace, prefix: "" })
    expect(whole.lastSeq).toBe(2500)
    let written = false
    const seen: Array<string> = []
    yield* Stream.runForEach(whole.portions, portion =>
      Effect.gen(function* () {
        seen.push(...portion.map(sketch))
        if (written) return
        written = true
        yield* write(
          [...names.slice(1500).map(key => set(namespace, key, "new")), set(namespace, "zzz", "new")].slice(-1000)
        )
        yield* remove(namespace, names[2400]!)
      })
    )
    expect(seen).toEqual(names.map((key, index) => `${key} 1 ${index % 1000}`))
    expect((yield* feed(whole.lastSeq)).length).toBe(1001)
  })
}

/** What is shared by tenants, of a store that may read four whole lists at a time. */
export const sharesOfTenants = Effect.gen(function* () {
  const store = yield* Store
  // More than the first portion of a list, so that each holds its snapshot.
  const large = "x".repeat(200 * 1024)
  const [a, b, none] = ["tenant:a/lists", "tenant:b/lists", "lists"]
  for (const space of [a, b, none]) yield* write(["1", "2", "3"].map(key => set(space, key, large)))
  const begin = (space: string) =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const begun = yield* Effect.either(Scope.extend(store.listAll({ namespace: space, prefix: "" }), scope))
      return { isTaken: Either.isRight(begun), end: Scope.close(scope, Exit.void) }
    })
  const beginAll = (spaces: ReadonlyArray<string>) => Effect.forEach(spaces, begin)
  const begun = yield* beginAll([a, a, a, a, b, b])
  expect(begun.map(({ isTaken }) => isTaken)).toEqual([true, true, true, false, true, false])
  yield* begun[0]!.end
  yield* begun[0]!.end
  const again = yield* beginAll([a, a])
  expect(again.map(({ isTaken }) => isTaken)).toEqual([true, false])
  for (const { end } of [...begun, ...again]) yield* end
  // Namespaces of no tenant may have all.
  const others = yield* beginAll([none, none, none, none, none])
  expect(others.map(({ isTaken }) => isTaken)).toEqual([true, true, true, true, false])
  for (const { end } of others) yield* end
})
