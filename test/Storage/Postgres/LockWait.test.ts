/** How long groups of writes wait for the lock of the log. */
import { expect } from "@effect/vitest"
import { Context, Effect, Fiber, Layer, Metric, MetricState } from "effect"
import * as MetricTags from "../../../src/base/Observability/MetricTags.ts"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { Store } from "../../../src/Kv/Store.ts"
import { newDatabase, optionsOf, sql, withClient } from "../../postgres/Databases.ts"
import { live, onPostgres } from "../../postgres/Live.ts"
import * as Opened from "../../postgres/Opened.ts"
import { del, set } from "../../suites/Store/Fixture.ts"
import { namespace, put, someoneWaits } from "./Fixture.ts"

const tag = "lock-wait-test"

/** How many groups have waited, and their milliseconds in all. */
const waitsOf = (tag: string) =>
  Effect.map(Metric.snapshot, pairs => {
    const pair = pairs.find(
      ({ metricKey }) =>
        metricKey.name === "postgres_log_lock_wait_ms" && metricKey.tags.some(({ value }) => value === tag)
    )
    const state = pair?.metricState
    return state !== undefined && MetricState.isHistogramState(state)
      ? { count: state.count, sum: state.sum }
      : undefined
  })

const waits = waitsOf(tag)

onPostgres("Postgres, waits for the log", () => {
  /** What another connection keeps waiting for the lock for a tenth of a second. */
  const kept = <A, E, R>(url: string, effect: Effect.Effect<A, E, R>) =>
    withClient(url, function* (other) {
      yield* other("BEGIN")
      yield* other("SELECT FROM causeway.log FOR UPDATE")
      const waiting = yield* Effect.fork(effect)
      yield* someoneWaits(url)
      yield* other("SELECT pg_sleep(0.1)")
      yield* other("COMMIT")
      return yield* Fiber.join(waiting)
    })

  live("are measured by the database, of groups that take the lock", function* () {
    const url = yield* newDatabase
    const context = yield* Layer.build(MetricTags.tagged({ test_store: tag })(Opened.layer(optionsOf(url))))
    const node = { store: Context.get(context, Store), log: Context.get(context, ChangeLog) }
    expect(yield* waits).toEqual({ count: 0, sum: 0 })
    yield* kept(url, put(node, "k", 1))
    const waited = yield* waits
    expect(waited?.count).toBe(1)
    expect(waited?.sum).toBeGreaterThanOrEqual(100)
    // A delete of an absent key changes nothing, and waits for no other node.
    yield* node.store.commit({ operations: [del(namespace, "absent")], actor: "tester" })
    expect((yield* waits)?.count).toBe(1)
    yield* put(node, "k", 2)
    expect((yield* waits)?.count).toBe(2)
  })

  live("are measured of writes with idempotency keys, also of one that changes nothing", function* () {
    const url = yield* newDatabase
    const context = yield* Layer.build(MetricTags.tagged({ test_store: `${tag}-keyed` })(Opened.layer(optionsOf(url))))
    const { commit } = Context.get(context, Store)
    const keyed = (id: string, operation: ReturnType<typeof set> | ReturnType<typeof del>) =>
      commit({ operations: [operation], actor: "tester", idempotencyKey: { tenant: "t", id, digest: "digest" } })
    yield* kept(url, keyed("first", set(namespace, "k", 1)))
    const changed = yield* waitsOf(`${tag}-keyed`)
    expect(changed?.count).toBe(1)
    expect(changed?.sum).toBeGreaterThanOrEqual(100)
    // It is remembered, so that it waits.
    yield* kept(url, keyed("second", del(namespace, "absent")))
    const unchanged = yield* waitsOf(`${tag}-keyed`)
    expect(unchanged?.count).toBe(2)
    expect(unchanged?.sum).toBeGreaterThanOrEqual(200)
  })

  live("are measured of a group that takes the lock first, having lost a race", function* () {
    const url = yield* newDatabase
    yield* Layer.build(Opened.layer(optionsOf(url)))
    const parameters = "'{n}', '{k}', '{1}', '{tester}', '{1}', '{1}', ARRAY[NULL]::bigint[], NULL, NULL"
    for (const call of [
      `commit_group(gen_random_uuid(), 1, true, ${parameters})`,
      `commit_keyed(gen_random_uuid(), 1, true, ${parameters}, 1000000, '{1}', '{id}', '{digest}', '{""}', '{t}', false)`
    ]) {
      const [row] = yield* kept(url, sql(url, `SELECT causeway.${call} AS answer`))
      expect(Number(String(row?.answer).split(",").at(-1))).toBeGreaterThanOrEqual(100_000)
    }
  })
})
