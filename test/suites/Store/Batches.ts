import { expect } from "@effect/vitest"
import { Effect, Option } from "effect"
import { ifVersion } from "../../../src/Kv/Write.ts"
import { type Check, del, feed, get, lastSeq, outline, put, set, start, write } from "./Fixture.ts"

const namespace = "tenant:t1/batches"

/** Several operations in one write. */
export const batches = (check: Check) => {
  check("operations are applied in order, with consecutive seq and one timestamp", function* () {
    yield* put(namespace, "b", 0)
    const committed = yield* write(
      [set(namespace, "c", 1), del(namespace, "b"), set("other", "a", 2), del(namespace, "never set")],
      "ann"
    )
    expect(committed).toMatchObject({
      results: [
        { op: "set", entry: { version: 1 } },
        { op: "delete", deleted: true },
        { op: "set", entry: { version: 1 } },
        { op: "delete", deleted: false }
      ],
      timestamp: start,
      lastSeq: 4
    })
    const record = { actor: "ann", timestamp: start }
    expect(yield* feed(1)).toEqual([
      { ...record, seq: 2, op: "set", namespace, key: "c", value: "1", version: 1 },
      { ...record, seq: 3, op: "delete", namespace, key: "b", value: null, version: 2 },
      { ...record, seq: 4, op: "set", namespace: "other", key: "a", value: "2", version: 1 }
    ])
  })

  check("the same key may appear more than once", function* () {
    const key = "k"
    const { results } = yield* write([
      set(namespace, key, 1),
      set(namespace, key, 2),
      del(namespace, key),
      del(namespace, key),
      set(namespace, key, 3)
    ])
    expect(results).toMatchObject([
      { op: "set", entry: { version: 1 } },
      { op: "set", entry: { version: 2 } },
      { op: "delete", deleted: true },
      { op: "delete", deleted: false },
      { op: "set", entry: { version: 4 } }
    ])
    expect(Option.getOrThrow(yield* get(namespace, key))).toMatchObject({ version: 4, value: "3" })
    expect((yield* feed()).map(outline)).toEqual(
      ["set k 1", "set k 2", "delete k 3", "set k 4"].map(o => `${o} tester`)
    )
    expect((yield* feed()).map(change => change.value)).toEqual(["1", "2", null, "3"])
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

  check("one precondition that does not hold refuses the whole batch and names the operation", function* () {
    yield* put(namespace, "k", 1)
    const refused = yield* Effect.flip(
      write([
        set(namespace, "a", 1),
        del(namespace, "k"),
        set(namespace, "b", 1, { precondition: ifVersion(7) }),
        set(namespace, "c", 1)
      ])
    )
    expect(refused).toMatchObject({
      _tag: "PreconditionFailed",
      index: 2,
      currentVersion: null,
      isChangedBefore: false
    })
    for (const key of ["a", "b", "c"]) expect(yield* get(namespace, key)).toEqual(Option.none())
    expect(Option.getOrThrow(yield* get(namespace, "k")).version).toBe(1)
    expect(yield* lastSeq).toBe(1)
    yield* put(namespace, "a", 1)
    expect((yield* feed()).map(outline)).toEqual(["set k 1 tester", "set a 1 tester"])
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

  check("an empty batch changes nothing", function* () {
    expect(yield* write([])).toMatchObject({ results: [], lastSeq: 0 })
    yield* put(namespace, "k", 1)
    expect(yield* write([])).toMatchObject({ results: [], lastSeq: 1 })
    expect(yield* lastSeq).toBe(1)
  })

  check("a batch of deletes of absent keys changes nothing", function* () {
    const { results, lastSeq: last } = yield* write(["a", "b"].map(key => del(namespace, key)))
    expect(results).toEqual([
      { op: "delete", deleted: false },
      { op: "delete", deleted: false }
    ])
    expect(last).toBe(0)
  })

  check("a batch of a thousand operations is one write", function* () {
    const operations = Array.from({ length: 1000 }, (_, index) => set(namespace, `k${index % 600}`, index))
    const committed = yield* write(operations)
    expect(committed.lastSeq).toBe(1000)
    expect(committed.results.map(result => result.op === "set" && result.entry.version)).toEqual(
      operations.map((_, index) => (index < 600 ? 1 : 2))
    )
    expect((yield* feed()).map(change => change.value)).toEqual(operations.map(operation => operation.value))
  })
}
