import { expect } from "@effect/vitest"
import { Effect, Either, Option } from "effect"
import * as TestClock from "effect/TestClock"
import { IdempotencyConflict, Store } from "../../../src/Kv/Store.ts"
import type { Operation, Write } from "../../../src/Kv/Write.ts"
import { type Check, del, feed, get, lastSeq, outline, put, set, start, write } from "./Fixture.ts"

const namespace = "tenant:t1/idempotency"

/** Commits a write under an idempotency key. */
const commitAs = (id: string, digest: string, given: Omit<Write, "actor">) =>
  Effect.flatMap(Store, store =>
    store.commit({ ...given, actor: "tester", idempotencyKey: { tenant: "t1", id, digest } })
  )

const writeAs = (id: string, ...operations: ReadonlyArray<Operation>) => commitAs(id, "digest", { operations })

/** The result of a write, with its entries, without `isReplay`. */
const resultOf = ({ lastSeq, more, results, timestamp }: Effect.Effect.Success<ReturnType<typeof writeAs>>) => ({
  lastSeq,
  more,
  timestamp,
  results: results.map(result => (result.op === "set" ? { version: result.version, entry: result.entry } : result))
})

const day = 24 * 60 * 60 * 1000

/** Writes with idempotency keys. */
export const idempotency = (check: Check) => {
  check("a repeated set has the first results, even if the entry has changed since, and writes nothing", function* () {
    yield* put(namespace, "k", 0)
    const given = set(namespace, "k", "first", { expiresAt: start + 100 })
    const first = yield* writeAs("a", given)
    expect(first).not.toHaveProperty("isReplay")
    yield* TestClock.setTime(start + 50)
    yield* put(namespace, "k", "later")
    yield* TestClock.setTime(start + 500)
    // The time that a `ttlMs` comes to is another one by now.
    const again = yield* writeAs("a", { ...given, expiresAt: start + 600 })
    expect(again.isReplay).toBe(true)
    expect(resultOf(again)).toEqual(resultOf(first))
    expect(resultOf(again)).toEqual({
      lastSeq: 2,
      more: undefined,
      timestamp: start,
      results: [
        {
          version: 2,
          entry: {
            namespace,
            key: "k",
            value: '"first"',
            version: 2,
            updatedBy: "tester",
            updatedAt: start,
            expiresAt: start + 100
          }
        }
      ]
    })
    expect((yield* feed()).map(outline)).toEqual(["set k 1 tester", "set k 2 tester", "set k 3 tester"])
    expect(Option.getOrThrow(yield* get(namespace, "k")).value).toBe('"later"')
  })

  check("another request with the key of an applied one is refused, and writes nothing", function* () {
    yield* writeAs("a", set(namespace, "k", 1))
    const other = yield* Effect.flip(commitAs("a", "other", { operations: [set(namespace, "k", 2)] }))
    expect(other).toEqual(new IdempotencyConflict({ isInProgress: false }))
    const prefixDelete = { namespace, prefix: "", limit: 10 }
    expect(yield* Effect.flip(commitAs("a", "other", { operations: [], prefixDelete }))).toEqual(other)
    expect(yield* lastSeq).toBe(1)
    yield* commitAs("b", "other", { operations: [set(namespace, "k", 2)] })
    expect(yield* lastSeq).toBe(2)
  })

  check("a write that is refused is not remembered", function* () {
    const conditional = set(namespace, "k", 1, { precondition: { match: [1] } })
    expect(yield* Effect.flip(writeAs("a", conditional))).toMatchObject({ _tag: "PreconditionFailed" })
    yield* put(namespace, "k", 0)
    expect(yield* commitAs("a", "other", { operations: [conditional] })).toMatchObject({ lastSeq: 2 })
    // Its precondition was checked the first time, and is no longer satisfied.
    expect(yield* commitAs("a", "other", { operations: [conditional] })).toMatchObject({ lastSeq: 2 })
    expect(yield* lastSeq).toBe(2)
  })

  check("the results of batches, deletes of absent entries and writes without operations are stored", function* () {
    const many = [
      set(namespace, "a", 1),
      set(namespace, "b", 1, { expiresAt: start + day * 2 }),
      del(namespace, "none"),
      del(namespace, "a")
    ]
    const batch = yield* writeAs("batch", ...many)
    const absent = yield* writeAs("absent", del(namespace, "none"))
    const empty = yield* writeAs("empty")
    yield* put(namespace, "none", 1)
    expect(resultOf(yield* writeAs("batch", ...many))).toEqual(resultOf(batch))
    expect(batch.results.map(result => (result.op === "set" ? result.version : result.deleted))).toEqual([
      1,
      1,
      false,
      true
    ])
    expect(resultOf(yield* writeAs("absent", del(namespace, "none")))).toEqual(resultOf(absent))
    expect(absent.results).toEqual([{ op: "delete", deleted: false }])
    expect(yield* writeAs("empty")).toMatchObject({ results: [], lastSeq: empty.lastSeq, isReplay: true })
    expect(yield* Effect.flip(commitAs("empty", "other", { operations: [] }))).toMatchObject({ isInProgress: false })
    expect((yield* feed()).map(outline)).toEqual([
      "set a 1 tester",
      "set b 1 tester",
      "delete a 2 tester",
      "set none 1 tester"
    ])
  })

  check("a repeated delete of a prefix deletes nothing else", function* () {
    yield* write(["a", "b", "c"].map(key => set(namespace, key, 1)))
    const two = { operations: [], prefixDelete: { namespace, prefix: "", limit: 2 } }
    const first = yield* commitAs("two", "digest", two)
    expect(first).toMatchObject({ more: true, lastSeq: 5, results: [{ deleted: true }, { deleted: true }] })
    const none = { operations: [], prefixDelete: { namespace, prefix: "x", limit: 2 } }
    const nothing = yield* commitAs("none", "digest", none)
    expect(nothing).toMatchObject({ more: false, lastSeq: 5, results: [] })
    yield* put(namespace, "x", 1)
    expect(resultOf(yield* commitAs("two", "digest", two))).toEqual(resultOf(first))
    expect(resultOf(yield* commitAs("none", "digest", none))).toEqual(resultOf(nothing))
    expect(yield* lastSeq).toBe(6)
  })

  check("a write is remembered for a day, by the clock of the store", function* () {
    const given = set(namespace, "k", 1)
    yield* writeAs("a", given)
    yield* TestClock.setTime(start + day - 1000)
    expect(yield* writeAs("a", given)).toMatchObject({ lastSeq: 1, isReplay: true })
    yield* TestClock.setTime(start + day + 1000)
    expect(yield* commitAs("a", "other", { operations: [given] })).toMatchObject({ lastSeq: 2 })
    // The clock is set back: the newest record counts.
    yield* TestClock.setTime(start)
    expect(yield* commitAs("a", "other", { operations: [given] })).toMatchObject({ lastSeq: 2, isReplay: true })
    expect(yield* Effect.flip(writeAs("a", given))).toMatchObject({ isInProgress: false })
  })

  check(
    "of repetitions at the same time one is applied, and the others are in progress or have its results",
    function* () {
      for (let round = 0; round < 5; round++) {
        const outcomes = yield* Effect.forEach(
          Array.from({ length: 8 }),
          () => Effect.either(writeAs(`r${round}`, set(namespace, "k", round))),
          { concurrency: "unbounded" }
        )
        const { lastSeq: end } = yield* writeAs(`r${round}`, set(namespace, "k", round))
        expect(end).toBe(round + 1)
        for (const outcome of outcomes) {
          if (Either.isRight(outcome)) expect(outcome.right.lastSeq).toBe(end)
          else expect(outcome.left).toEqual(new IdempotencyConflict({ isInProgress: true }))
        }
        expect(yield* lastSeq).toBe(round + 1)
      }
    }
  )

  check("writes with and without keys, known and new, share a group and each has its own outcome", function* () {
    yield* writeAs("known", set(namespace, "known", 1))
    yield* writeAs("taken", set(namespace, "taken", 1))
    yield* write([set(namespace, "x/1", 1), set(namespace, "x/2", 1)])
    const prefixDelete = { namespace, prefix: "x/", limit: 10 }
    const outcomes = yield* Effect.all(
      [
        write([set(namespace, "plain", 1)]),
        writeAs("known", set(namespace, "known", 1)),
        writeAs("new", set(namespace, "new", 1)),
        Effect.either(writeAs("refused", set(namespace, "new", 2, { precondition: { noneMatch: "any" } }))),
        Effect.either(commitAs("taken", "other", { operations: [set(namespace, "taken", 2)] })),
        commitAs("prefix", "digest", { operations: [], prefixDelete }),
        writeAs("last", set(namespace, "new", 3), set(namespace, "last", 1)),
        write([del(namespace, "plain")])
      ],
      { concurrency: "unbounded" }
    )
    expect(outcomes).toMatchObject([
      { lastSeq: 5 },
      { lastSeq: 1, isReplay: true },
      { lastSeq: 6 },
      { left: { _tag: "PreconditionFailed" } },
      { left: { _tag: "IdempotencyConflict", isInProgress: false } },
      { results: [{ deleted: true }, { deleted: true }] },
      { results: [{ version: 2 }, { version: 1 }] },
      { results: [{ deleted: true }] }
    ])
    const end = yield* lastSeq
    expect(end).toBe(11)
    expect(yield* commitAs("prefix", "digest", { operations: [], prefixDelete })).toMatchObject({ isReplay: true })
    expect(yield* writeAs("new", set(namespace, "new", 1))).toMatchObject({
      lastSeq: 6,
      isReplay: true,
      results: [{ version: 1 }]
    })
    expect(yield* writeAs("last", set(namespace, "new", 3), set(namespace, "last", 1))).toMatchObject({
      isReplay: true,
      results: [{ version: 2 }, { version: 1 }]
    })
    expect(yield* writeAs("refused", set(namespace, "other", 2))).toMatchObject({ lastSeq: end + 1 })
  })
}
