import { expect } from "@effect/vitest"
import { Effect, Either, Option } from "effect"
import * as TestClock from "effect/TestClock"
import type { Precondition } from "../../../src/Kv/Write.ts"
import {
  type Check,
  del,
  expireAll,
  feed,
  get,
  json,
  keys,
  lastSeq,
  outline,
  put,
  remove,
  set,
  start,
  write
} from "./Fixture.ts"

const namespace = "tenant:t1/area"

/** Versions, tombstones and names. */
export const entries = (check: Check) => {
  check("a new key has version 1, and is read as it was stored", function* () {
    const committed = yield* write([set(namespace, "k", { a: [1] }, { expiresAt: start + 5 })], "ann")
    expect(committed).toMatchObject({ results: [{ op: "set", entry: { version: 1 } }], timestamp: start, lastSeq: 1 })
    expect(Option.getOrThrow(yield* get(namespace, "k"))).toEqual({
      namespace,
      key: "k",
      value: json({ a: [1] }),
      version: 1,
      updatedBy: "ann",
      updatedAt: start,
      expiresAt: start + 5
    })
  })

  check("a set replaces the entry whole and takes the next version", function* () {
    yield* write([set(namespace, "k", 1)], "ann")
    yield* TestClock.adjust("7 millis")
    const committed = yield* write([set(namespace, "k", 2)], "bob")
    expect(committed.results).toMatchObject([{ op: "set", entry: { version: 2 } }])
    const entry = Option.getOrThrow(yield* get(namespace, "k"))
    expect(entry).toMatchObject({ value: "2", version: 2, updatedBy: "bob", updatedAt: start + 7, expiresAt: null })
  })

  check("a key that was never set is absent", function* () {
    expect(yield* get(namespace, "k")).toEqual(Option.none())
    yield* put(namespace, "k", 1)
    expect(yield* get(namespace, "other")).toEqual(Option.none())
    expect(yield* get("other", "k")).toEqual(Option.none())
  })

  check("a delete takes the next version, and a later set continues from it", function* () {
    yield* put(namespace, "k", "first")
    expect((yield* remove(namespace, "k")).results).toEqual([{ op: "delete", deleted: true }])
    expect(yield* get(namespace, "k")).toEqual(Option.none())
    expect((yield* put(namespace, "k", "second")).results).toMatchObject([{ op: "set", entry: { version: 3 } }])
    expect((yield* feed()).map(outline)).toEqual(["set k 1 tester", "delete k 2 tester", "set k 3 tester"])
    expect((yield* feed())[1]!.value).toBeNull()
  })

  check("a delete of an absent key changes nothing", function* () {
    expect(yield* remove(namespace, "k")).toMatchObject({ results: [{ op: "delete", deleted: false }], lastSeq: 0 })
    yield* put(namespace, "k", 1)
    yield* remove(namespace, "k")
    expect((yield* remove(namespace, "k")).results).toEqual([{ op: "delete", deleted: false }])
    expect(yield* lastSeq).toBe(2)
    expect((yield* put(namespace, "k", 2)).results).toMatchObject([{ op: "set", entry: { version: 3 } }])
  })

  check("the boundary between namespace and key counts", function* () {
    yield* put("a/b", "c", 1)
    yield* put("a", "b/c", 2)
    expect(Option.getOrThrow(yield* get("a/b", "c")).value).toBe("1")
    expect(Option.getOrThrow(yield* get("a", "b/c")).value).toBe("2")
    expect(yield* keys("a")).toEqual(["b/c"])
  })

  check("names are kept exactly, and only equal ones are the same", function* () {
    const names = [
      "k",
      "K",
      "k ",
      " k",
      "1",
      "01",
      "1.0",
      "1e0",
      "-0",
      "null",
      "é",
      "e\u0301",
      "/ : % ? # [ ] @ ! $ & ' ( ) * + , ; = \\ \" ` ~ ^ | < > { }",
      "%2F",
      "../..",
      "...",
      "\u0001\t\n\r\u007f\u0085\u2028\ufeff",
      "日本語",
      "😀",
      "\u{10ffff}",
      "\uffff",
      "__proto__",
      "constructor",
      "k".repeat(1024),
      `${"k".repeat(1023)}l`,
      "😀".repeat(256)
    ]
    for (const [index, name] of names.entries()) yield* put(namespace, name, index)
    for (const [index, name] of names.entries()) {
      expect(Option.getOrThrow(yield* get(namespace, name))).toMatchObject({
        key: name,
        value: `${index}`,
        version: 1
      })
    }
    expect((yield* feed()).map(change => change.key)).toEqual(names)
    expect([...(yield* keys(namespace))].sort()).toEqual([...names].sort())
    const spaces = new Set(names.map(name => name.slice(0, 128)))
    for (const space of spaces) yield* put(space, "in every namespace", space)
    for (const space of spaces) {
      expect(Option.getOrThrow(yield* get(space, "in every namespace"))).toMatchObject({ value: json(space) })
      expect(yield* keys(space)).toEqual(["in every namespace"])
    }
  })

  check("actors are recorded exactly", function* () {
    const actors = ["", "api", "expiry", "Zoë 😀", "x'); DROP TABLE entries; --"]
    for (const actor of actors) {
      yield* write([set(namespace, "k", 0)], actor)
      expect(Option.getOrThrow(yield* get(namespace, "k")).updatedBy).toBe(actor)
    }
    expect((yield* feed()).map(change => change.actor)).toEqual(actors)
  })

  check("time never goes back within the log", function* () {
    yield* put(namespace, "k", 1)
    yield* TestClock.setTime(start - 60_000)
    const committed = yield* put(namespace, "k", 2)
    expect(committed.timestamp).toBe(start)
    expect(Option.getOrThrow(yield* get(namespace, "k")).updatedAt).toBe(start)
    yield* put(namespace, "expiring", 1, { expiresAt: start - 50_000 })
    yield* TestClock.setTime(start - 40_000)
    expect(yield* expireAll).toBe(1)
    yield* TestClock.setTime(start + 1)
    yield* remove(namespace, "k")
    expect((yield* feed()).map(change => change.timestamp)).toEqual([start, start, start, start, start + 1])
  })
}

/** What there may be at a key, how to bring that about, and the version that readers then see. */
const states = {
  "never set": { current: null, make: () => Effect.void },
  "at version 2": { current: 2, make: (key: string) => Effect.zip(put(namespace, key, 1), put(namespace, key, 2)) },
  deleted: { current: null, make: (key: string) => Effect.zip(put(namespace, key, 1), remove(namespace, key)) },
  expired: { current: null, make: (key: string) => put(namespace, key, 1, { expiresAt: start + 10 }) }
} as const

const preconditions: ReadonlyArray<{
  readonly title: string
  readonly precondition: Precondition
  readonly holdsAbsent: boolean
  readonly holdsAt2: boolean
}> = [
  { title: "match any", precondition: { match: "any" }, holdsAbsent: false, holdsAt2: true },
  { title: "match 2", precondition: { match: [2] }, holdsAbsent: false, holdsAt2: true },
  { title: "match 1 or 2", precondition: { match: [1, 2] }, holdsAbsent: false, holdsAt2: true },
  { title: "match 1 or 3", precondition: { match: [1, 3] }, holdsAbsent: false, holdsAt2: false },
  { title: "match nothing", precondition: { match: [] }, holdsAbsent: false, holdsAt2: false },
  { title: "match 0", precondition: { match: [0] }, holdsAbsent: false, holdsAt2: false },
  { title: "none match any", precondition: { noneMatch: "any" }, holdsAbsent: true, holdsAt2: false },
  { title: "none match 2", precondition: { noneMatch: [2] }, holdsAbsent: true, holdsAt2: false },
  { title: "none match 1 or 3", precondition: { noneMatch: [1, 3] }, holdsAbsent: true, holdsAt2: true },
  { title: "none match nothing", precondition: { noneMatch: [] }, holdsAbsent: true, holdsAt2: true },
  {
    title: "match any, none match 1",
    precondition: { match: "any", noneMatch: [1] },
    holdsAbsent: false,
    holdsAt2: true
  },
  { title: "match 2, none match 2", precondition: { match: [2], noneMatch: [2] }, holdsAbsent: false, holdsAt2: false },
  { title: "nothing asked", precondition: {}, holdsAbsent: true, holdsAt2: true }
]

/** Preconditions against every state of a key, for set and delete alike. */
export const conditional = (check: Check) => {
  for (const [state, { current, make }] of Object.entries(states)) {
    check(`preconditions if the key is ${state}`, function* () {
      const cases = preconditions.flatMap(({ title, precondition, holdsAbsent, holdsAt2 }) =>
        (["set", "delete"] as const).map(op => {
          const key = `${op}, ${title}`
          const operation =
            op === "set" ? set(namespace, key, "new", { precondition }) : del(namespace, key, precondition)
          return { key, operation, holds: current === null ? holdsAbsent : holdsAt2 }
        })
      )
      yield* Effect.forEach(cases, ({ key }) => make(key))
      yield* TestClock.setTime(start + 10)
      for (const { key, operation, holds } of cases) {
        const before = { entry: yield* get(namespace, key), lastSeq: yield* lastSeq }
        const outcome = yield* Effect.either(write([operation]))
        const after = { entry: yield* get(namespace, key), lastSeq: yield* lastSeq }
        if (!holds) {
          expect(Either.flip(outcome), key).toMatchObject({
            _tag: "Right",
            right: { _tag: "PreconditionFailed", index: 0, currentVersion: current }
          })
          expect(after, key).toEqual(before)
        } else if (operation.op === "set") {
          const { value, version } = Option.getOrThrow(after.entry)
          expect(value, key).toBe(json("new"))
          expect(outcome, key).toMatchObject({
            right: { results: [{ op: "set", entry: { version } }], lastSeq: after.lastSeq }
          })
        } else {
          expect(outcome, key).toMatchObject({ right: { results: [{ op: "delete", deleted: current !== null }] } })
          expect(after.entry, key).toEqual(Option.none())
          expect(after.lastSeq, key).toBe(before.lastSeq + (current === null ? 0 : 1))
        }
      }
    })
  }
}
