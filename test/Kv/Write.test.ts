import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck as fc } from "effect"
import { JsonText } from "../../src/base/Json/JsonText.ts"
import { holds, ifVersion, isLive, type KeyState, type Operation, type Precondition, plan } from "../../src/Kv/Write.ts"
import { times } from "../Scale.ts"

const numRuns = times(300)
const now = 1000

const set = (key: string, expiresAt: number | null = null, precondition: Precondition = {}): Operation => ({
  op: "set",
  namespace: "n",
  key,
  value: JsonText("1"),
  expiresAt,
  precondition
})
const del = (key: string, precondition: Precondition = {}): Operation => ({
  op: "delete",
  namespace: "n",
  key,
  precondition
})

const entry = (version: number, expiresAt: number | null = null): KeyState => ({ version, present: true, expiresAt })
const tombstone = (version: number): KeyState => ({ version, present: false, expiresAt: null })

const planned = (operations: ReadonlyArray<Operation>, states: Readonly<Record<string, KeyState>> = {}) =>
  plan({ operations, actor: "ann" }, (_, key) => states[key], now)

/** The steps of a plan in short. */
const steps = (operations: ReadonlyArray<Operation>, states: Readonly<Record<string, KeyState>> = {}) =>
  Either.getOrThrow(planned(operations, states)).steps.map(
    ({ op, key, version, actor }) => `${op} ${key} ${version} ${actor}`
  )

describe("isLive", () => {
  it.each([
    ["nothing", undefined, false],
    ["a tombstone", tombstone(1), false],
    ["an entry without an expiry", entry(1), true],
    ["an entry that ends later", entry(1, now + 1), true],
    ["an entry that ends now", entry(1, now), false],
    ["an entry that has ended", entry(1, now - 1), false]
  ])("%s", (_, state, live) => expect(isLive(state, now)).toBe(live))
})

describe("holds", () => {
  it.each<[Precondition | undefined, absent: boolean, at2: boolean]>([
    [undefined, true, true],
    [{}, true, true],
    [{ match: "any" }, false, true],
    [{ match: [2] }, false, true],
    [{ match: [1, 3] }, false, false],
    [{ match: [] }, false, false],
    [{ noneMatch: "any" }, true, false],
    [{ noneMatch: [2] }, true, false],
    [{ noneMatch: [1, 3] }, true, true],
    [{ noneMatch: [] }, true, true],
    [{ match: "any", noneMatch: [1] }, false, true],
    [{ match: [2], noneMatch: "any" }, false, false],
    [ifVersion(0), true, false],
    [ifVersion(1), false, false],
    [ifVersion(2), false, true]
  ])("%j where absent: %j, at version 2: %j", (precondition, absent, at2) => {
    expect(holds(precondition, null)).toBe(absent)
    expect(holds(precondition, 2)).toBe(at2)
  })
})

describe("plan", () => {
  it.each<[string, ReadonlyArray<Operation>, Readonly<Record<string, KeyState>>, ReadonlyArray<string>]>([
    ["nothing", [], {}, []],
    ["a new key", [set("k")], {}, ["set k 1 ann"]],
    ["a set over an entry", [set("k")], { k: entry(4) }, ["set k 5 ann"]],
    ["a set over a tombstone", [set("k")], { k: tombstone(4) }, ["set k 5 ann"]],
    ["a set over what ran out", [set("k")], { k: entry(4, now) }, ["delete k 5 expiry", "set k 6 ann"]],
    ["a set over what runs out later", [set("k")], { k: entry(4, now + 1) }, ["set k 5 ann"]],
    ["a delete", [del("k")], { k: entry(4) }, ["delete k 5 ann"]],
    ["a delete of nothing", [del("k")], {}, []],
    ["a delete of a tombstone", [del("k")], { k: tombstone(4) }, []],
    ["a delete of what ran out", [del("k")], { k: entry(4, now) }, []],
    ["set, delete, set", [set("k"), del("k"), set("k")], {}, ["set k 1 ann", "delete k 2 ann", "set k 3 ann"]],
    [
      "a delete and a set of what ran out",
      [del("k"), set("k")],
      { k: entry(4, now) },
      ["delete k 5 expiry", "set k 6 ann"]
    ],
    [
      "expiries are before the write's own steps",
      [set("a"), set("b"), set("c")],
      { b: entry(1, 1), c: entry(2, 2) },
      ["delete b 2 expiry", "delete c 3 expiry", "set a 1 ann", "set b 3 ann", "set c 4 ann"]
    ],
    ["an end in the past set twice", [set("k", 1), set("k", 1)], {}, ["set k 1 ann", "set k 2 ann"]],
    ["a delete of an end in the past", [set("k", 1), del("k")], {}, ["set k 1 ann"]]
  ])("%s", (_, operations, states, expected) => expect(steps(operations, states)).toEqual(expected))

  it.each<[string, ReadonlyArray<Operation>, Readonly<Record<string, KeyState>>, number, number | null, boolean?]>([
    ["absent, wanted present", [set("k", null, { match: "any" })], {}, 0, null],
    ["present, wanted absent", [set("k", null, { noneMatch: "any" })], { k: entry(3) }, 0, 3],
    ["another version", [del("k", { match: [2] })], { k: entry(3) }, 0, 3],
    ["a tombstone has no version to match", [set("k", null, { match: [3] })], { k: tombstone(3) }, 0, null],
    ["nor has what ran out", [set("k", null, { match: [3] })], { k: entry(3, now) }, 0, null],
    ["the second operation", [set("a"), set("k", null, ifVersion(1))], {}, 1, null],
    ["after an earlier set", [set("k"), set("k", null, ifVersion(0))], {}, 1, null, true],
    ["after an earlier set of a present entry", [set("k"), set("k", null, ifVersion(3))], { k: entry(3) }, 1, 3, true],
    ["after an earlier delete", [del("k"), del("k", { match: "any" })], { k: entry(3) }, 1, 3, true],
    ["after an earlier set of what ran out", [set("k"), del("k", { match: [3] })], { k: entry(3, now) }, 1, null, true]
  ])("refuses: %s", (_, operations, states, index, currentVersion, isChangedBefore = false) =>
    expect(planned(operations, states)).toEqual(
      Either.left({ _tag: "Refused", index, currentVersion, isChangedBefore })
    )
  )

  it("keeps namespaces apart", () => {
    const operations: ReadonlyArray<Operation> = [set("k"), { ...set("k"), namespace: "m" }]
    expect(steps(operations)).toEqual(["set k 1 ann", "set k 1 ann"])
  })

  const key = fc.constantFrom("a", "b", "c")
  const end = fc.constantFrom(null, now - 1, now, now + 1)
  const precondition = fc.constantFrom<Precondition>(
    {},
    {},
    {},
    { match: "any" },
    { noneMatch: "any" },
    { match: [1, 3] }
  )
  const operation = fc.oneof(
    fc.tuple(key, fc.constantFrom(null, now + 1), precondition).map(args => set(...args)),
    fc.tuple(key, precondition).map(args => del(...args))
  )
  const state = fc.oneof(
    fc.tuple(fc.integer({ min: 1, max: 4 }), end).map(args => entry(...args)),
    fc.integer({ min: 1, max: 4 }).map(tombstone)
  )
  const write = fc.tuple(fc.array(operation, { maxLength: 8 }), fc.dictionary(key, state))

  it("gives each key the versions that follow its own, one by one", () => {
    fc.assert(
      fc.property(write, ([operations, states]) => {
        const outcome = planned(operations, states)
        if (Either.isLeft(outcome)) return
        const versions = new Map(Object.entries(states).map(([key, { version }]) => [key, version]))
        for (const step of outcome.right.steps) {
          expect(step.version).toBe((versions.get(step.key) ?? 0) + 1)
          versions.set(step.key, step.version)
        }
      }),
      { numRuns }
    )
  })

  it("has a result for each operation, and a step of its actor for each that changes something", () => {
    fc.assert(
      fc.property(write, ([operations, states]) => {
        const outcome = planned(operations, states)
        if (Either.isLeft(outcome)) return
        const { steps, results } = outcome.right
        expect(results.map(result => result.op)).toEqual(operations.map(({ op }) => op))
        const own = steps.filter(({ actor }) => actor === "ann")
        const effective = operations.filter((_, index) => {
          const result = results[index]!
          return result.op === "set" || result.deleted
        })
        expect(own.map(({ op, key }) => [op, key])).toEqual(effective.map(({ op, key }) => [op, key]))
        expect(steps.slice(steps.length - own.length)).toEqual(own)
      }),
      { numRuns }
    )
  })

  it("gives the same in one write as in many, unless something expires", () => {
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 8 }), operations => {
        const states: Record<string, KeyState> = {}
        const single: Array<string> = []
        let refusedAt: number | undefined
        for (const [index, operation] of operations.entries()) {
          const outcome = planned([operation], states)
          if (Either.isLeft(outcome)) {
            refusedAt = index
            break
          }
          for (const step of outcome.right.steps) {
            single.push(`${step.op} ${step.key} ${step.version} ${step.actor}`)
            states[step.key] = step.op === "set" ? entry(step.version, step.expiresAt) : tombstone(step.version)
          }
        }
        if (refusedAt === undefined) expect(steps(operations)).toEqual(single)
        else expect(planned(operations)).toMatchObject({ _tag: "Left", left: { index: refusedAt } })
      }),
      { numRuns }
    )
  })
})
