/** Lists of many entries, and of many that have expired. */
import { expect } from "@effect/vitest"
import { Effect, Fiber, Layer, Stream } from "effect"
import { defaults, Limits } from "../../../../src/base/Limits.ts"
import { StoreUnavailable } from "../../../../src/Kv/Store.ts"
import { newStore, optionsOf, sql } from "../../../postgres/Databases.ts"
import { live, onPostgres } from "../../../postgres/Live.ts"
import * as Opened from "../../../postgres/Opened.ts"
import * as Proxy from "../../../postgres/Proxy.ts"
import { sharesOfTenants } from "../../../suites/Store/Lists.ts"
import { node, put } from "../Fixture.ts"

/** Adds rows as many writes would, all at once; those of an expiry have expired. */
const add = (url: string, namespace: string, prefix: string, amount: number, expiresAt: number | null = null) =>
  sql(
    url,
    `INSERT INTO causeway.entries (namespace, key, version, updated_at, expires_at, updated_by, value)
     SELECT '${namespace}', '${prefix}' || lpad(n::text, 6, '0'), 1, 1, ${expiresAt ?? "NULL"}, 'tester', '1'
     FROM generate_series(1, ${amount}) n`,
    "ANALYZE causeway.entries"
  )

onPostgres("Postgres, lists", () => {
  const namespace = "tenant:t/many"

  live("a count of many entries is that of its page's snapshot, also while many of them have expired", function* () {
    const url = yield* newStore
    const one = yield* node(url)
    yield* put(one, "first", 1)
    yield* add(url, namespace, "k", 25_000)
    yield* add(url, namespace, "due", 300, 1)
    const list = { namespace, prefix: "k", after: "", limit: 2, isCounted: true }
    const counts = Effect.gen(function* () {
      const found: Array<number | undefined> = []
      for (const query of [list, { ...list, prefix: "" }, { ...list, prefix: "", start: "due", end: "k000100" }]) {
        const page = yield* one.store.list(query)
        expect([page.entries.length, page.more, page.lastSeq]).toEqual([2, true, 1])
        const whole = yield* Effect.scoped(
          Effect.gen(function* () {
            const { count, portions } = yield* one.store.listAll(query)
            const read = yield* Stream.runFold(portions, 0, (sum, entries) => sum + entries.length)
            return [count, read]
          })
        )
        expect(whole).toEqual([page.count, page.count])
        found.push(page.count)
      }
      return found
    })
    expect(yield* counts).toEqual([25_000, 25_000, 99])
    yield* add(url, namespace, "later", 5000, 1)
    expect(yield* counts).toEqual([25_000, 25_000, 99])
  })

  live("a count whose client is gone ends, and with it its snapshot", function* () {
    const url = yield* newStore
    const proxy = yield* Proxy.make(url)
    const one = yield* node(proxy.url)
    yield* add(url, namespace, "k", 6000)
    proxy.set("black hole", "max(key)")
    const counting = yield* Effect.fork(
      one.store.list({ namespace, prefix: "k", after: "", limit: 1, isCounted: true })
    )
    yield* Effect.promise(() => proxy.affected)
    const snapshots = Effect.map(
      sql(
        url,
        `SELECT 1 FROM pg_stat_activity
           WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
             AND query NOT LIKE '%autovacuum%' AND state = 'idle in transaction'`
      ),
      rows => rows.length
    )
    expect(yield* snapshots).toBe(1)
    yield* Fiber.interrupt(counting)
    yield* Effect.repeat(snapshots, { until: open => open === 0 })

    // So does one whose database does not answer.
    const count = one.store.list({ namespace, prefix: "k", after: "", limit: 1, isCounted: true })
    expect(yield* Effect.flip(count)).toBeInstanceOf(StoreUnavailable)
    proxy.set("open")
    expect((yield* count).count).toBe(6000)
  })

  live("whole lists of one tenant leave some for the others", function* () {
    const url = yield* newStore
    const limits = Layer.succeed(Limits, { ...defaults, wholeLists: 4 })
    yield* Effect.provide(sharesOfTenants, Layer.provide(Opened.layer(optionsOf(url)), limits))
  })
})
