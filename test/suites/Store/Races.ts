import { expect } from "@effect/vitest"
import { Effect, Fiber, Option, Stream } from "effect"
import { toUnknown } from "../../../src/base/Json/JsonText.ts"
import type { StoredChange } from "../../../src/Kv/Change.ts"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { type Check, del, feed, get, lastSeq, list, listAll, put, read, remove, set, sketch, write } from "./Fixture.ts"

const namespace = "tenant:t1/races"

const upTo = (count: number) => Array.from({ length: count }, (_, index) => index + 1)

/** Follows the log as a client would, until the record `end`. */
const follow = (after: number, end: number, limit: number, tenant = "") =>
  Effect.gen(function* () {
    const { awaitPast } = yield* ChangeLog
    const seen: Array<StoredChange> = []
    for (let at = after; at < end; ) {
      const page = yield* read(at, limit, tenant)
      seen.push(...page.changes)
      if (page.lastSeq === at) yield* awaitPast(at)
      at = page.lastSeq
    }
    return seen
  })

/** Lets a writer in another thread be heard. */
const turn = Effect.async<void>(resume => {
  setImmediate(() => resume(Effect.void))
})

/** Writers and readers at the same time. */
export const races = (check: Check) => {
  check("200 writers of one key get consecutive versions", function* () {
    const committed = yield* Effect.forEach(upTo(200), n => put(namespace, "k", n), { concurrency: "unbounded" })
    const versions = committed.map(({ results }) => (results[0]?.op === "set" ? results[0].entry.version : 0))
    expect([...versions].sort((a, b) => a - b)).toEqual(upTo(200))
    const records = yield* feed()
    expect(records.map(change => change.version)).toEqual(upTo(200))
    const valueAt = new Map(versions.map((version, index) => [version, String(index + 1)]))
    expect(records.map(change => change.value as string)).toEqual(upTo(200).map(version => valueAt.get(version)))
    expect(Option.getOrThrow(yield* get(namespace, "k")).version).toBe(200)
  })

  check("of many that create a key, and of many that delete it, only one succeeds", function* () {
    const creating = put(namespace, "k", 1, { precondition: { noneMatch: "any" } })
    const outcomes = yield* Effect.replicateEffect(Effect.either(creating), 100, { concurrency: "unbounded" })
    const left = { _tag: "PreconditionFailed", currentVersion: 1 }
    expect(outcomes.filter(outcome => outcome._tag === "Right")).toHaveLength(1)
    for (const one of outcomes) if (one._tag === "Left") expect(one).toMatchObject({ left })
    expect(yield* lastSeq).toBe(1)
    const deletes = yield* Effect.replicateEffect(remove(namespace, "k"), 30, { concurrency: "unbounded" })
    expect(deletes.filter(({ results }) => results[0]?.op === "delete" && results[0].deleted)).toHaveLength(1)
    expect(yield* lastSeq).toBe(2)
  })

  check("compare-and-set loses no update", function* () {
    yield* put(namespace, "counter", 0)
    const increment = Effect.gen(function* () {
      const { value, version } = Option.getOrThrow(yield* get(namespace, "counter"))
      yield* put(namespace, "counter", Number(toUnknown(value)) + 1, { precondition: { match: [version] } })
    }).pipe(Effect.retry({ while: error => error._tag === "PreconditionFailed" }))
    yield* Effect.forEach(upTo(10), () => Effect.repeatN(increment, 4), { concurrency: "unbounded" })
    expect(Option.getOrThrow(yield* get(namespace, "counter"))).toMatchObject({ value: "50", version: 51 })
  })

  check("batches never interleave in the log", function* () {
    const batch = (n: number) =>
      write(
        upTo(8).map(index => set(namespace, `k${(n + index) % 5}`, index)),
        `writer ${n}`
      )
    const committed = yield* Effect.forEach(upTo(50), batch, { concurrency: "unbounded" })
    const records = yield* feed()
    expect(records.map(change => change.seq)).toEqual(upTo(400))
    for (const [index, { lastSeq: last }] of committed.entries()) {
      const own = records.filter(change => change.actor === `writer ${index + 1}`)
      expect(own.map(change => change.seq)).toEqual(upTo(8).map(n => own[0]!.seq + n - 1))
      expect(own.map(change => change.value as string)).toEqual(upTo(8).map(String))
      expect(last).toBe(own[7]!.seq)
    }
    for (const key of ["k0", "k1", "k2", "k3", "k4"]) {
      const versions = records.filter(change => change.key === key).map(change => change.version)
      expect(versions).toEqual(upTo(versions.length))
    }
  })

  check("no reader sees part of a batch", function* () {
    const writing = yield* Effect.fork(
      Effect.forEach(upTo(60), n =>
        Effect.zipRight(Effect.yieldNow(), write([set(namespace, "a", n), set(namespace, "b", n)]))
      )
    )
    for (let at = 0; at < 120; ) {
      const { entries, lastSeq: last } = yield* list(namespace)
      expect(entries.map(sketch)).toEqual(last === 0 ? [] : [`a ${last / 2} ${last / 2}`, `b ${last / 2} ${last / 2}`])
      expect(last).toBeGreaterThanOrEqual(at)
      at = last
      yield* turn
    }
    yield* Fiber.join(writing)
  })

  check("readers that race writers see every seq once and in order", function* () {
    const readers = yield* Effect.forkAll([follow(0, 150, 7), follow(0, 150, 1000), follow(0, 150, 1)])
    const own = yield* Effect.fork(follow(0, 150, 3, "t1"))
    const writeOne = (n: number) => put(n % 3 === 0 ? namespace : "tenant:t2/x", `k${n % 7}`, n)
    yield* Effect.forEach(upTo(150), n => Effect.zipRight(Effect.yieldNow(), writeOne(n)), { concurrency: 10 })
    for (const seen of yield* Fiber.join(readers)) expect(seen.map(change => change.seq)).toEqual(upTo(150))
    const ownSeqs = (yield* feed()).filter(change => change.namespace === namespace).map(change => change.seq)
    expect(ownSeqs).toHaveLength(50)
    expect((yield* Fiber.join(own)).map(change => change.seq)).toEqual(ownSeqs)
  })

  check("to list and then to follow misses and repeats nothing", function* () {
    const total = 200
    const lister = (whole: boolean) =>
      Effect.scoped(
        Effect.gen(function* () {
          const { lastSeq: from, portions } = whole
            ? yield* listAll({ namespace, prefix: "" })
            : yield* Effect.map(list(namespace), page => ({ ...page, portions: Stream.make(page.entries) }))
          const listed = [...(yield* Stream.runCollect(portions))].flat()
          const view = new Map(listed.map(entry => [entry.key, sketch(entry)]))
          const versions = new Map(listed.map(entry => [entry.key, entry.version]))
          for (const { op, key, value, version } of yield* follow(from, total, 11)) {
            const before = versions.get(key)
            if (before !== undefined) expect(version).toBe(before + 1)
            versions.set(key, version)
            if (op === "delete") view.delete(key)
            else view.set(key, `${key} ${version} ${value}`)
          }
          return [...view.values()].sort()
        })
      )
    const writing = yield* Effect.fork(
      Effect.forEach(upTo(total / 2), n => {
        const key = `k${n % 9}`
        const pair =
          n % 4 === 0
            ? [put(namespace, key, n), remove(namespace, key)]
            : [write([set(namespace, key, n), del(namespace, "absent"), set(namespace, "last", n)])]
        return Effect.zipRight(Effect.all(pair), Effect.yieldNow())
      })
    )
    const views: Array<ReadonlyArray<string>> = []
    for (const n of upTo(20)) views.push(yield* lister(n % 2 === 0))
    yield* Fiber.join(writing)
    const final = (yield* list(namespace)).entries.map(sketch).sort()
    expect(final.length).toBeGreaterThan(1)
    for (const view of views) expect(view).toEqual(final)
  })
}
