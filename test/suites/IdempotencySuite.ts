import { describe, expect, it } from "@effect/vitest"
import { Effect, FastCheck as fc, Layer, Metric, type Scope, TestContext } from "effect"
import * as TestClock from "effect/TestClock"
import * as Limits from "../../src/base/Limits.ts"
import * as MetricTags from "../../src/base/Observability/MetricTags.ts"
import type { ChangeLog } from "../../src/Kv/ChangeLog.ts"
import { overheadBytes } from "../../src/Kv/Idempotency.ts"
import { Store } from "../../src/Kv/Store.ts"
import type { Operation, Write } from "../../src/Kv/Write.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { Model } from "./Model.ts"
import type { Steps } from "./Steps.ts"
import { del, feed, lastSeq, set, start } from "./Store/Fixture.ts"

const namespace = "tenant:t/retries"

const keyedOf = (tenant: string, id: string, ...operations: ReadonlyArray<Operation>): Write => ({
  operations,
  actor: "tester",
  idempotencyKey: { tenant, id: `${tenant} ${id}`, digest: "digest" }
})

const keyed = (id: string, ...operations: ReadonlyArray<Operation>): Write => keyedOf("t", id, ...operations)

/** The value of a metric of the instance with a tag. */
const valueOf = (metric: string, tag: string): number => {
  const found = Metric.unsafeSnapshot().find(
    ({ metricKey }) => metricKey.name === metric && metricKey.tags.some(({ value }) => value === tag)
  )
  const state = found?.metricState as { readonly count?: number; readonly value?: number } | undefined
  return state?.count ?? state?.value ?? Number.NaN
}

const commit = (write: Write) => Effect.flatMap(Store, store => store.commit(write))

/** A write of random operations, and how many writes later it is repeated each time. */
interface Attempted {
  readonly operations: ReadonlyArray<Operation>
  readonly retries: ReadonlyArray<number>
  readonly millis: number
}

const operation: fc.Arbitrary<Operation> = fc
  .record({
    key: fc.constantFrom("a", "b", "c"),
    value: fc.nat(9),
    isSet: fc.boolean(),
    version: fc.option(fc.nat(4), { nil: undefined, freq: 3 })
  })
  .map(({ isSet, key, value, version }) => {
    const precondition = version === undefined ? undefined : { match: [version] }
    return isSet
      ? set(namespace, key, value, precondition === undefined ? {} : { precondition })
      : del(namespace, key, precondition)
  })

const attempted: fc.Arbitrary<Attempted> = fc.record({
  operations: fc.array(operation, { maxLength: 3 }),
  retries: fc.array(fc.nat(5), { maxLength: 3 }),
  millis: fc.nat(1000)
})

/** The order in which the writes are sent, including repetitions, as indexes of the writes. */
const scheduleOf = (all: ReadonlyArray<Attempted>): ReadonlyArray<number> =>
  all
    .flatMap(({ retries }, index) => [index, ...retries.map(later => index + later)].map(at => ({ at, index })))
    .sort((one, other) => one.at - other.at || one.index - other.index)
    .map(({ index }) => index)

/**
 * What is remembered of writes with idempotency keys beyond one life of a store. `layerAt` opens a store in a directory;
 * where it `persists`, another one that is opened there later has what the first has left.
 */
export const idempotencySuite = (
  name: string,
  options: {
    readonly layerAt: (directory: string) => Layer.Layer<Store | ChangeLog, unknown>
    readonly persists: boolean
    /** Sequences to try. */
    readonly runs: number
  }
): void => {
  const { layerAt, persists, runs } = options
  const limitBytes = 20 * 1024
  const limited = (directory: string, idempotencyBytes = limitBytes) =>
    Layer.provide(layerAt(directory), Layer.succeed(Limits.Limits, { ...Limits.defaults, idempotencyBytes }))

  /** Registers a test with a store of its own. */
  const check = (title: string, body: () => Steps<Store | ChangeLog | Scope.Scope>, idempotencyBytes?: number): void =>
    it.scoped(title, () =>
      Effect.gen(function* () {
        yield* TestClock.setTime(start)
        yield* Effect.provide(Effect.gen(body), limited(yield* temporaryDirectory, idempotencyBytes))
      })
    )

  describe(`${name}, writes with idempotency keys`, () => {
    /** Room for some sixty writes. */
    const fewBytes = 16 * 1024
    const day = 24 * 60 * 60 * 1000
    const none = del(namespace, "none")
    const isKnown = (tenant: string, id: string, ...operations: ReadonlyArray<Operation>) =>
      Effect.map(
        commit(keyedOf(tenant, id, ...(operations.length === 0 ? [none] : operations))),
        ({ isReplay = false }) => isReplay
      )

    check("a clock that is set back for a moment makes no earlier write forgotten", function* () {
      yield* isKnown("t", "old")
      yield* TestClock.setTime(start + day - 1000)
      yield* isKnown("t", "young")
      yield* TestClock.setTime(start - 9 * day)
      yield* isKnown("t", "long ago")
      yield* TestClock.setTime(start + day)
      expect(yield* isKnown("t", "last")).toBe(false)
      expect(yield* isKnown("t", "young")).toBe(true)
      expect(yield* isKnown("t", "old")).toBe(false)
    })

    it(
      "any sequence of repeated writes leaves the store as the sequence without repetitions",
      { timeout: 600_000 },
      () =>
        fc.assert(
          fc.asyncProperty(fc.array(attempted, { maxLength: 20, size: "max" }), all =>
            Effect.runPromise(
              Effect.gen(function* () {
                yield* TestClock.setTime(start)
                const model = new Model(start)
                const applied = new Map<number, unknown>()
                yield* Effect.gen(function* () {
                  for (const index of scheduleOf(all)) {
                    const { millis, operations } = all[index]!
                    model.now += millis
                    yield* TestClock.setTime(model.now)
                    const outcome = yield* Effect.either(commit(keyed(`w${index}`, ...operations)))
                    if (applied.has(index)) {
                      expect(outcome).toMatchObject({ right: { isReplay: true } })
                      expect(outcome).toMatchObject({ right: applied.get(index) })
                      continue
                    }
                    const verdict = model.write(operations, "tester")
                    if ("index" in verdict) {
                      expect(outcome).toMatchObject({ left: { _tag: "PreconditionFailed", ...verdict } })
                    } else {
                      applied.set(index, { ...verdict, lastSeq: model.end })
                      expect(outcome).toMatchObject({ right: applied.get(index) })
                    }
                  }
                  expect(yield* feed()).toEqual(model.log)
                }).pipe(Effect.provide(layerAt(yield* temporaryDirectory)))
              }).pipe(Effect.scoped, Effect.provide(TestContext.TestContext))
            )
          ),
          { numRuns: runs, endOnFailure: false }
        )
    )

    /** A write of 250 operations. */
    const large = Array.from({ length: 250 }, (_, index) => set(namespace, `k${index}`, 1))

    check("above the limit of bytes only the oldest are removed", function* () {
      // Four of these have room, and not a fifth.
      const expiring = large.map(operation => ({ ...operation, expiresAt: start + 1e9 }))
      const small = Array.from({ length: 2 * Math.ceil(limitBytes / overheadBytes) }, (_, index) => `small${index}`)
      for (const id of [...small, small[0]!]) expect(yield* isKnown("t", id)).toBe(false)
      expect(yield* isKnown("t", small.at(-1)!)).toBe(true)
      for (const id of ["0", "1", "2", "3", "4"]) expect(yield* isKnown("t", id, ...expiring)).toBe(false)
      for (const id of ["4", "3", "2", "1"]) expect(yield* isKnown("t", id, ...expiring)).toBe(true)
      expect(yield* isKnown("t", small.at(-1)!)).toBe(false)
      expect(yield* isKnown("t", "0", ...expiring)).toBe(false)
    })

    check(
      "a write with more bytes than the limit is known until the next one",
      function* () {
        for (const id of ["a", "b"]) {
          for (const isReplay of [false, true]) expect(yield* isKnown("t", id, ...large)).toBe(isReplay)
        }
        expect(yield* lastSeq).toBe(500)
        expect(yield* isKnown("t", "a", ...large)).toBe(false)
      },
      overheadBytes
    )

    check(
      "tenants with at most an equal share of the bytes lose nothing, whatever others write",
      function* () {
        const few = Array.from({ length: 6 }, (_, index) => `${index}`)
        const modest = ["a", "", "tenant/\u00e9"]
        for (const tenant of modest) for (const id of few) expect(yield* isKnown(tenant, id)).toBe(false)
        const floods = ["flood", "other flood"] as const
        const many = 2 * Math.ceil(fewBytes / overheadBytes)
        for (let index = 0; index < many; index++) for (const tenant of floods) yield* isKnown(tenant, `${index}`)
        for (const tenant of modest) for (const id of few) expect(yield* isKnown(tenant, id)).toBe(true)
        // The newest of the others are known, equally many of each.
        const known = { flood: 0, "other flood": 0 }
        for (const tenant of floods) {
          while (known[tenant] < many && (yield* isKnown(tenant, `${many - 1 - known[tenant]}`))) known[tenant]++
        }
        expect(Math.abs(known.flood - known["other flood"])).toBeLessThanOrEqual(3)
        expect(known.flood).toBeGreaterThan(15)
      },
      fewBytes
    )

    check(
      "a key that is used again each day counts once",
      function* () {
        for (let days = 0; days < 10; days++) {
          yield* TestClock.setTime(start + days * day)
          expect(yield* isKnown("t", "again")).toBe(false)
        }
        expect(yield* isKnown("t", "other")).toBe(false)
        expect(yield* isKnown("t", "again")).toBe(true)
      },
      8 * overheadBytes
    )

    check(
      "of many tenants with one key each the oldest are forgotten",
      function* () {
        const many = Math.ceil(fewBytes / overheadBytes)
        for (let index = 0; index < many; index++) expect(yield* isKnown(`tenant${index}`, "a")).toBe(false)
        let known = 0
        while (known < many && (yield* isKnown(`tenant${many - 1 - known}`, "a"))) known++
        expect(known).toBeGreaterThan(0.75 * many)
        expect(yield* isKnown("tenant0", "a")).toBe(false)
      },
      fewBytes
    )

    it.scoped("metrics show the bytes, and the records that were removed early", () =>
      Effect.gen(function* () {
        yield* TestClock.setTime(start)
        const measured = MetricTags.tagged({ test_store: name })(limited(yield* temporaryDirectory, fewBytes))
        const figures = () => ({
          bytes: valueOf("kv_idempotency_bytes", name),
          forgotten: valueOf("kv_idempotency_keys_forgotten_total", name)
        })
        yield* Effect.gen(function* () {
          expect(figures()).toEqual({ bytes: 0, forgotten: 0 })
          yield* isKnown("t", "first")
          const each = figures().bytes
          expect(each).toBeGreaterThan(overheadBytes)
          const fitting = Math.floor(fewBytes / each)
          for (let index = 0; index < 2 * fitting; index++) yield* isKnown("t", `${index}`)
          const full = figures()
          expect(full.bytes).toBeLessThanOrEqual(fewBytes)
          expect(full.bytes).toBeGreaterThan(fewBytes - 3 * each)
          expect(full.forgotten).toBeGreaterThanOrEqual(fitting)
          expect(full.forgotten).toBeLessThanOrEqual(fitting + 3)
          // What is too old is not forgotten early.
          yield* TestClock.setTime(start + day)
          for (let index = 0; index < fitting - 5; index++) yield* isKnown("t", `later ${index}`)
          expect(figures().forgotten).toBe(full.forgotten)
          expect(figures().bytes).toBeLessThanOrEqual(fewBytes)
        }).pipe(Effect.provide(measured))
      })
    )

    if (!persists) return

    it("are remembered by a store that is opened again", () =>
      Effect.runPromise(
        Effect.gen(function* () {
          const directory = yield* temporaryDirectory
          yield* TestClock.setTime(start)
          const write = keyed("a", set(namespace, "k", 1, { expiresAt: start + 1000 }), del(namespace, "none"))
          const open = Effect.provide(Effect.zip(commit(write), lastSeq), layerAt(directory))
          const [first, firstEnd] = yield* open
          yield* TestClock.setTime(start + 500)
          const [again, end] = yield* open
          expect([firstEnd, end]).toEqual([1, 1])
          expect(again.isReplay).toBe(true)
          expect(again).toMatchObject({
            timestamp: first.timestamp,
            lastSeq: 1,
            results: [{ version: 1 }, { deleted: false }]
          })
          expect(again.results.map(result => "entry" in result && result.entry)).toEqual(
            first.results.map(result => "entry" in result && result.entry)
          )
        }).pipe(Effect.scoped, Effect.provide(TestContext.TestContext))
      ))
  })
}
