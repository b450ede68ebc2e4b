/** Changes of counts that wait to be folded: who reads counts adds them, and commits never visit earlier ones. */

import { expect } from "@effect/vitest"
import { Context, Effect, Fiber, Layer, Stream } from "effect"
import type pg from "pg"
import { defaults, Limits } from "../../../../src/base/Limits.ts"
import { ChangeLog } from "../../../../src/Kv/ChangeLog.ts"
import { Store, StoreUnavailable } from "../../../../src/Kv/Store.ts"
import type { Operation } from "../../../../src/Kv/Write.ts"
import * as Namespaces from "../../../../src/Storage/Postgres/Kv/ListQueries.ts"
import { newStore, optionsOf, sql } from "../../../postgres/Databases.ts"
import { live, onPostgres } from "../../../postgres/Live.ts"
import * as Opened from "../../../postgres/Opened.ts"
import * as Proxy from "../../../postgres/Proxy.ts"
import { del, set } from "../../../suites/Store/Fixture.ts"
import { sharesOfTenants } from "../../../suites/Store/Lists.ts"
import * as Numbers from "../../Numbers.ts"
import { node, put } from "../Fixture.ts"
import * as Held from "../Held.ts"

const now = 1_700_000_000_000

const commit = (client: pg.Client, operations: ReadonlyArray<Operation>) =>
  Held.call(client, "commit_group", Held.groupOf(operations, now, true))

const fold = async (client: pg.Client, fewest: number, portion: number): Promise<number> =>
  (await client.query("SELECT causeway.fold_counts($1, $2) AS folded", [fewest, portion])).rows[0].folded

const waiting = async (client: pg.Client): Promise<number> =>
  Number((await client.query("SELECT count(*) FROM causeway.count_changes")).rows[0].count)

const expectCounted = async (client: pg.Client): Promise<void> =>
  Numbers.expectCounted((await client.query(Held.countsText)).rows[0] as Numbers.Tables)

const one = "tenant:t/one"
const page = { prefix: "", after: "", limit: 10, tenant: "" }

onPostgres("Postgres, changes of counts", () => {
  live("each snapshot has the numbers of its entries, however commits and folds run at the same time", function* () {
    const url = yield* newStore
    const writers = yield* Effect.forEach([0, 1, 2], () => Held.connect(url))
    const folders = yield* Effect.forEach([0, 1], () => Held.connect(url))
    const reader = yield* Held.connect(url)
    yield* Effect.promise(async () => {
      const names = ["n", "tenant:", "tenant:a", "tenant:a/x", "tenant:a/y", "tenant:b/x", "tenant:b-c/x"]
      let isDone = false
      let folded = 0
      let looks = 0
      const writing = writers.map(async (client, writer) => {
        for (let round = 0; round < 80; round++) {
          const operations = names
            .filter((_, index) => (index * 5 + round + writer) % 3 === 0)
            .map((namespace, index) => {
              const key = `k${(round + index) % 4}`
              return (round * 7 + index + writer) % 5 < 3 ? set(namespace, key, round) : del(namespace, key)
            })
          await commit(client, operations)
        }
      })
      const whileWriting = async (work: () => Promise<void>): Promise<void> => {
        do await work()
        while (!isDone)
      }
      await Promise.all([
        Promise.all(writing).finally(() => {
          isDone = true
        }),
        ...folders.map(client =>
          whileWriting(async () => {
            folded += await fold(client, 1, 7)
          })
        ),
        whileWriting(async () => {
          await expectCounted(reader)
          looks++
        })
      ])
      expect(folded).toBeGreaterThan(0)
      expect(looks).toBeGreaterThan(0)
      await expectCounted(reader)
      for (let more = 1; more > 0; ) more = await fold(reader, 1, 7)
      expect(await waiting(reader)).toBe(0)
      await expectCounted(reader)
    })
  })

  Held.duringSnapshot(
    "a commit visits as much after many of them as after few, while a snapshot is held",
    async client => {
      let written = 0
      const write = async (groups: number): Promise<void> => {
        for (const end = written + groups; written < end; written++) await commit(client, [set(one, `k${written}`, 1)])
      }
      const measure = async () => {
        const groupOf = (key: string) => Held.groupOf([set(one, key, 1)], now, true)
        return {
          commit: await Held.pagesOf(
            client,
            Held.calling("commit_group", groupOf("measured")),
            groupOf("measured before")
          ),
          namespaces: await Held.pagesOf(client, Namespaces.namespaces(page, now)),
          tenants: await Held.pagesOf(client, Namespaces.tenants(page, now)),
          // As lists with counts do.
          namespace: await Held.pagesOf(client, {
            text: "SELECT entries FROM causeway.namespaces WHERE namespace = $1",
            values: [one]
          })
        }
      }
      await write(300)
      await fold(client, 1, 10_000)
      const few = await measure()
      for (let round = 0; round < 4; round++) {
        await write(500)
        await fold(client, 1, 10_000)
      }
      const many = await measure()
      for (const [what, pages] of Object.entries(many)) {
        expect(pages, what).toBeLessThan(few[what as keyof typeof few] + 12)
      }
      await expectCounted(client)
    }
  )

  Held.connected("few changes wait, and one folds at a time", async (client, other) => {
    for (const key of ["a", "b", "c"]) await commit(client, [set(one, key, 1)])
    expect(await fold(client, 4, 10)).toBe(0)
    await client.query("BEGIN")
    expect(await fold(client, 1, 2)).toBe(2)
    expect(await fold(other, 1, 2)).toBe(0)
    await client.query("COMMIT")
    expect(await fold(other, 1, 2)).toBe(1)
    await expectCounted(other)
    await client.query("TRUNCATE causeway.entries")
    await expectCounted(other)
    await commit(client, [set(one, "d", 1)])
    await expectCounted(other)
  })
})

const literal = (value: string | number | null): string =>
  typeof value === "string" ? `'${value.replaceAll("'", "''")}'` : String(value)

const rows = (all: ReadonlyArray<ReadonlyArray<string | number | null>>): string =>
  all.map(values => `(${values.map(literal).join()})`).join()

/** A database whose rows were written by hand. */
const filled = Effect.gen(function* () {
  const url = yield* newStore
  const { entries, tombstones } = Numbers
  const changes = [
    ...entries.map(({ key, namespace }) => ["set", namespace, key, 1, "1"] as const),
    ...tombstones.map(({ key, namespace }) => ["delete", namespace, key, 2, null] as const)
  ]
  yield* sql(
    url,
    `INSERT INTO causeway.entries (namespace, key, version, updated_at, updated_by, value, expires_at)
         SELECT v.namespace, v.key, 1, 1, 'tester', '1', v.expires_at
         FROM (VALUES ${rows(entries.map(({ expiresAt, key, namespace }) => [namespace, key, expiresAt]))})
           v(namespace, key, expires_at)`,
    // Those that were deleted were counted before.
    `INSERT INTO causeway.entries (namespace, key, version, updated_at, updated_by, value)
         SELECT v.namespace, v.key, 1, 1, 'tester', '1'
         FROM (VALUES ${rows(tombstones.map(({ key, namespace }) => [namespace, key]))}) v(namespace, key)`,
    "DELETE FROM causeway.entries WHERE key = 'deleted'",
    `INSERT INTO causeway.changes (seq, op, namespace, key, version, value, actor, timestamp)
         SELECT v.*, 'tester', 1
         FROM (VALUES ${rows(changes.map((values, index) => [index + 1, ...values]))})
           v(seq, op, namespace, key, version, value)`,
    `INSERT INTO causeway.tombstones (namespace, key, version, seq)
         SELECT c.namespace, c.key, 2, c.seq FROM causeway.changes c WHERE c.op = 'delete'`
  )
  return url
})

const tablesOf = (url: string) => Effect.map(sql(url, Held.countsText), ([row]) => row as unknown as Numbers.Tables)

onPostgres("Postgres, namespaces and tenants", () => {
  live("have the numbers of all entries, however these are named, and keep them with writes", function* () {
    const url = yield* filled
    const counted = yield* tablesOf(url)
    expect(counted.entries).toHaveLength(Numbers.entries.length)
    Numbers.expectCounted(counted)
    const { log, store } = yield* node(url)
    const context = Context.make(Store, store).pipe(Context.add(ChangeLog, log))
    yield* Effect.provide(Effect.zipRight(Numbers.expectShown, Numbers.change), context)
    Numbers.expectCounted(yield* tablesOf(url))
  })
})

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
