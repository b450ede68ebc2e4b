import { expect } from "@effect/vitest"
import { Effect, Option } from "effect"
import * as TestClock from "effect/TestClock"
import { ifVersion, type Precondition } from "../../../src/Kv/Write.ts"
import {
  type Check,
  del,
  expireAll,
  feed,
  get,
  json,
  keys,
  lastSeq,
  list,
  put,
  remove,
  set,
  start,
  write
} from "./Fixture.ts"

const namespace = "tenant:t1/area"

/** Names and actors, and several operations in one write. */
export const entries = (check: Check) => {
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
    // The boundary between namespace and key counts.
    yield* put("a/b", "c", 1)
    yield* put("a", "b/c", 2)
    expect(Option.getOrThrow(yield* get("a/b", "c")).value).toBe("1")
    expect(Option.getOrThrow(yield* get("a", "b/c")).value).toBe("2")
    expect(yield* keys("a")).toEqual(["b/c"])
  })

  check("actors are recorded exactly", function* () {
    const actors = ["", "api", "expiry", "Zoë 😀", "x'); DROP TABLE entries; --"]
    for (const actor of actors) {
      yield* write([set(namespace, "k", 0)], actor)
      expect(Option.getOrThrow(yield* get(namespace, "k")).updatedBy).toBe(actor)
    }
    expect((yield* feed()).map(change => change.actor)).toEqual(actors)
  })

  check("preconditions see the effects of earlier operations of the batch", function* () {
    const at = (key: string, version: number) => set(namespace, key, version, { precondition: ifVersion(version) })
    yield* write([at("k", 0), at("k", 1), at("k", 2), del(namespace, "k", ifVersion(3)), at("k", 0)])
    expect(Option.getOrThrow(yield* get(namespace, "k")).version).toBe(5)
    const refused = yield* Effect.flip(write([at("k", 5), at("k", 5)]))
    // Version 6 would have been that of the first operation, which was not applied either.
    expect(refused).toMatchObject({
      _tag: "PreconditionFailed",
      index: 1,
      currentVersion: 5,
      isChangedBefore: true
    })
    expect(Option.getOrThrow(yield* get(namespace, "k")).version).toBe(5)
  })

  check("a refused batch leaves no trace in what is committed together with it", function* () {
    const never = set(namespace, "never", 1, { precondition: ifVersion(7) })
    const changes = [set(namespace, "k", 2), del(namespace, "k"), set(namespace, "k", 2, { expiresAt: start - 1 })]
    yield* put(namespace, "k", 1)
    // Those after the first one wait for it, and share a transaction.
    const outcomes = yield* Effect.forEach(
      [
        [set(namespace, "other", 1)],
        ...changes.map(change => [change, never]),
        [set(namespace, "k", 2, { precondition: ifVersion(1) })]
      ],
      operations => Effect.either(write(operations)),
      { concurrency: "unbounded" }
    )
    expect(outcomes.map(({ _tag }) => _tag)).toEqual(["Right", "Left", "Left", "Left", "Right"])
    expect(Option.getOrThrow(yield* get(namespace, "k"))).toMatchObject({ value: "2", version: 2, expiresAt: null })
    expect(yield* lastSeq).toBe(3)
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

const preconditions: ReadonlyArray<readonly [holdsAbsent: boolean, holdsAt2: boolean, precondition: Precondition]> = [
  [false, true, { match: "any" }],
  [false, true, { match: [2] }],
  [false, true, { match: [1, 2] }],
  [false, false, { match: [1, 3] }],
  [false, false, { match: [] }],
  [false, false, { match: [0] }],
  [true, false, { noneMatch: "any" }],
  [true, false, { noneMatch: [2] }],
  [true, true, { noneMatch: [1, 3] }],
  [true, true, { noneMatch: [] }],
  [false, true, { match: "any", noneMatch: [1] }],
  [false, false, { match: [2], noneMatch: [2] }],
  [true, true, {}]
]

/** Preconditions against every state of a key, for set and delete alike. */
export const conditional = (check: Check) => {
  for (const [state, { current, make }] of Object.entries(states)) {
    check(`preconditions if the key is ${state}`, function* () {
      const cases = preconditions.flatMap(([holdsAbsent, holdsAt2, precondition]) =>
        (["set", "delete"] as const).map(op => {
          const key = `${op}, ${JSON.stringify(precondition)}`
          const operation =
            op === "set" ? set(namespace, key, "new", { precondition }) : del(namespace, key, precondition)
          return { key, operation, holds: current === null ? holdsAbsent : holdsAt2 }
        })
      )
      const all = { concurrency: "unbounded" } as const
      yield* Effect.forEach(cases, ({ key }) => make(key), all)
      yield* TestClock.setTime(start + 10)
      const end = yield* lastSeq
      const outcomes = yield* Effect.forEach(cases, ({ operation }) => Effect.either(write([operation])), all)
      const { entries } = yield* list(namespace)
      const present = new Map(entries.map(({ key, value, version }) => [key, { value, version }]))
      for (const [index, { key, operation, holds }] of cases.entries()) {
        const outcome = outcomes[index]
        const entry = present.get(key)
        if (!holds) {
          const left = { _tag: "PreconditionFailed", index: 0, currentVersion: current }
          expect(outcome, key).toMatchObject({ left })
          expect(entry, key).toEqual(current === null ? undefined : { value: "2", version: current })
        } else if (operation.op === "set") {
          expect(entry?.value, key).toBe(json("new"))
          expect(outcome, key).toMatchObject({ right: { results: [{ entry: { version: entry?.version } }] } })
        } else {
          expect(outcome, key).toMatchObject({ right: { results: [{ op: "delete", deleted: current !== null }] } })
          expect(entry, key).toBeUndefined()
        }
      }
      const written = (yield* feed(end)).filter(({ actor }) => actor === "tester").map(({ op, key }) => `${op} ${key}`)
      const wanted = cases.filter(({ holds, operation }) => holds && (operation.op === "set" || current !== null))
      expect(written.sort()).toEqual(wanted.map(({ key, operation }) => `${operation.op} ${key}`).sort())
    })
  }
}
