/** How long groups of writes wait for the lock of the log. */
import { describe, expect, it } from "@effect/vitest"
import { Context, Effect, Fiber, Layer, Metric, MetricState } from "effect"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { Store } from "../../../src/Kv/Store.ts"
import * as MetricTags from "../../../src/MetricTags.ts"
import * as Postgres from "../../../src/Storage/Postgres.ts"
import { createDatabase, execute, optionsOf, withClient } from "../../postgres/Databases.ts"
import { reasonToSkip } from "../../postgres/Server.ts"
import { del } from "../../suites/Store/Fixture.ts"
import { namespace, put } from "./Fixture.ts"

const tag = "lock-wait-test"

/** How many groups have waited, and their milliseconds in all. */
const waits = Effect.map(Metric.snapshot, pairs => {
  const pair = pairs.find(
    ({ metricKey }) =>
      metricKey.name === "postgres_log_lock_wait_ms" && metricKey.tags.some(({ value }) => value === tag)
  )
  const state = pair?.metricState
  return state !== undefined && MetricState.isHistogramState(state) ? { count: state.count, sum: state.sum } : undefined
})

/** Waits until a statement of the database waits for a lock. */
const someoneWaits = (url: string) =>
  Effect.promise(async () => {
    for (;;) {
      const [row] = await execute(url, "SELECT count(*)::int AS waiting FROM pg_locks WHERE NOT granted")
      if (Number(row?.waiting) > 0) return
    }
  })

describe.skipIf(reasonToSkip !== undefined)(`Postgres, waits for the log ${reasonToSkip ?? ""}`, () => {
  it.scopedLive("are measured by the database, of groups that take the lock", () =>
    Effect.gen(function* () {
      const url = yield* Effect.promise(() => createDatabase())
      const context = yield* Layer.build(MetricTags.tagged({ store: tag })(Postgres.layer(optionsOf(url))))
      const node = { store: Context.get(context, Store), log: Context.get(context, ChangeLog) }
      expect(yield* waits).toEqual({ count: 0, sum: 0 })
      yield* withClient(url, other =>
        Effect.gen(function* () {
          yield* other("BEGIN")
          yield* other("SELECT FROM causeway.log FOR UPDATE")
          const writing = yield* Effect.fork(put(node, "k", 1))
          yield* someoneWaits(url)
          yield* other("SELECT pg_sleep(0.1)")
          yield* other("COMMIT")
          yield* Fiber.join(writing)
        })
      )
      const waited = yield* waits
      expect(waited?.count).toBe(1)
      expect(waited?.sum).toBeGreaterThanOrEqual(100)
      // A delete of what is absent changes nothing, and waits for nobody.
      yield* node.store.commit({ operations: [del(namespace, "absent")], actor: "tester" })
      expect((yield* waits)?.count).toBe(1)
      yield* put(node, "k", 2)
      expect((yield* waits)?.count).toBe(2)
    })
  )
})
