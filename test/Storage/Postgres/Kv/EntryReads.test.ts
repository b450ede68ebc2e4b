/** Reads of single entries that share statements. */
import { expect, it } from "@effect/vitest"
import { Deferred, Effect, Either, Exit, Fiber } from "effect"
import { afterEach, beforeEach, describe, vi } from "vitest"
import { StoreUnavailable } from "../../../../src/Kv/Store.ts"
import type { Pool } from "../../../../src/Storage/Postgres/Database/Pool.ts"
import type { Query } from "../../../../src/Storage/Postgres/Database/Statement.ts"
import { EntryReads } from "../../../../src/Storage/Postgres/Kv/EntryReads.ts"
import { newDatabase } from "../../../postgres/Databases.ts"
import { live, onPostgres, together } from "../../../postgres/Live.ts"
import { namespace, node, put, ready } from "../Fixture.ts"

type Rows = ReadonlyArray<ReadonlyArray<unknown>>

/** A pool whose statements end when a test says so. */
const fakePool = () => {
  const sent: Array<Deferred.Deferred<Rows, StoreUnavailable>> = []
  const values: Array<Query<unknown>["values"]> = []
  const read = <A>({ decode, values: given }: Query<A>) =>
    Effect.gen(function* () {
      const answer = yield* Deferred.make<Rows, StoreUnavailable>()
      sent.push(answer)
      values.push(given)
      return decode(yield* Deferred.await(answer))
    })
  const pool: Pick<Pool, "read"> = { read }
  return { sent, values, reads: new EntryReads(pool, () => 0) }
}

const row = (position: number, value: string | null) => [position, 1, "tester", 0, null, value]

const turn = Effect.promise(() => new Promise<void>(resolve => setImmediate(() => setImmediate(resolve))))

const start = (reads: EntryReads, count: number) =>
  Effect.map(
    Effect.forEach(Array.from({ length: count }).keys(), index =>
      Effect.fork(Effect.either(reads.get("n", `${index}`)))
    ),
    Fiber.all
  ).pipe(Effect.zipLeft(turn))

const valuesOf = (read: ReadonlyArray<Either.Either<{ readonly value: unknown } | undefined, unknown>>) =>
  read.map(one => (Either.isRight(one) ? one.right?.value : "failed"))

describe("reads of single entries", () => {
  // A read fails when it has waited for too long, as on a machine that takes long for 10,000 of them.
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["performance"] })
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  it.live("reads of one turn share a statement, and later ones wait for the next, two at a time", () =>
    Effect.gen(function* () {
      const { reads, sent } = fakePool()
      const first = yield* start(reads, 3)
      const second = yield* start(reads, 1)
      const third = yield* start(reads, 2)
      expect(sent.length).toBe(2)
      yield* Deferred.succeed(sent[0]!, [row(3, "c"), row(1, "a")])
      expect(valuesOf(yield* Fiber.join(first))).toEqual(["a", undefined, "c"])
      yield* turn
      expect(sent.length).toBe(3)
      yield* Deferred.fail(sent[1]!, new StoreUnavailable({ reason: "lost" }))
      expect(valuesOf(yield* Fiber.join(second))).toEqual(["failed"])
      yield* Deferred.succeed(sent[2]!, [row(1, "d"), row(2, "e")])
      expect(valuesOf(yield* Fiber.join(third))).toEqual(["d", "e"])
    })
  )

  it.live("a statement has at most 64 entries, and a read that is due too late fails without one", () =>
    Effect.gen(function* () {
      const { reads, sent } = fakePool()
      const all = yield* start(reads, 200)
      yield* Effect.repeat(turn, { until: () => sent.length === 2 })
      vi.advanceTimersByTime(1901)
      yield* Effect.forEach(sent, each => Deferred.succeed(each, []))
      const found = yield* Fiber.join(all)
      expect(found.filter(Either.isLeft).length).toBe(200 - 2 * 64)
      expect(sent.length).toBe(2)
    })
  )

  it.live("a large value has a statement of its own, for which no other read waits", () =>
    Effect.gen(function* () {
      const { reads, sent, values } = fakePool()
      const all = yield* start(reads, 3)
      yield* Deferred.succeed(sent[0]!, [row(1, "a"), row(2, null), row(3, "c")])
      yield* turn
      expect(values.map(([names, keys]) => [names, keys])).toEqual([expect.anything(), ["n", "1"]])
      for (const index of [2, 3]) {
        const others = yield* start(reads, 1)
        yield* Deferred.succeed(sent[index]!, [row(1, "small")])
        expect(valuesOf(yield* Fiber.join(others))).toEqual(["small"])
      }
      yield* Deferred.succeed(sent[1]!, [row(1, "large")])
      expect(valuesOf(yield* Fiber.join(all))).toEqual(["a", "large", "c"])
    })
  )

  it.live("a read whose caller is gone needs no statement", () =>
    Effect.gen(function* () {
      const { reads, sent } = fakePool()
      const first = [yield* start(reads, 1), yield* start(reads, 1)]
      const gone = yield* start(reads, 70)
      yield* Fiber.interrupt(gone)
      for (const each of sent) yield* Deferred.succeed(each, [])
      for (const each of first) yield* Fiber.join(each)
      yield* turn
      expect(sent.length).toBe(2)
      const next = yield* start(reads, 1)
      yield* Deferred.succeed(sent[2]!, [row(1, "a")])
      expect(valuesOf(yield* Fiber.join(next))).toEqual(["a"])
    })
  )

  it.live("a read is refused while 10,000 wait", () =>
    Effect.gen(function* () {
      const { reads, sent } = fakePool()
      yield* start(reads, 10_000)
      yield* Effect.repeat(turn, { until: () => sent.length === 2 })
      yield* start(reads, 2 * 64)
      expect(yield* Effect.raceFirst(Effect.flip(reads.get("n", "late")), turn)).toBeInstanceOf(StoreUnavailable)
    })
  )
})

onPostgres("Postgres, reads of single entries", () => {
  live("each gets its own entry, and a name with U+0000 none", function* () {
    const started = yield* node(yield* newDatabase)
    yield* ready(started)
    const keys = Array.from({ length: 150 }, (_, index) => `k${index}`)
    const large = "x".repeat(200_000)
    yield* together(keys, key => put(started, key, key))
    yield* together(keys.slice(0, 3), key => put(started, key, `${key}${large}`))
    const read = yield* together([...keys, "absent", "k\u00001"], key => Effect.exit(started.store.get(namespace, key)))
    expect(read.map(exit => Exit.map(exit, entry => (entry._tag === "Some" ? entry.value.value : undefined)))).toEqual(
      [...keys.map((key, index) => JSON.stringify(index < 3 ? `${key}${large}` : key)), ...[undefined, undefined]].map(
        Exit.succeed
      )
    )
  })
})
