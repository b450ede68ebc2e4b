/** Metrics of the sizes of tables. */
import { describe, expect, it } from "@effect/vitest"
import { Effect, Metric } from "effect"
import { HeldBack, vacuumHolders } from "../../../../src/Storage/Postgres/Database/TableMetrics.ts"
import { createDatabase, newDatabase, optionsOf, sql, withClient } from "../../../postgres/Databases.ts"
import { live, onPostgres } from "../../../postgres/Live.ts"
import { isUnavailable, namespace, node, put } from "../Fixture.ts"

/** The values of a metric of a test's instance, by the value of a label. */
const figuresOf = (
  instance: string,
  name: string,
  label: string,
  other: Readonly<Record<string, string>> = {}
): ReadonlyMap<string, number> => {
  const figures = new Map<string, number>()
  for (const { metricKey, metricState } of Metric.unsafeSnapshot()) {
    const labels = new Map(metricKey.tags.map(({ key, value }) => [key, value]))
    const wanted = Object.entries({ ...other, test_tables: instance })
    if (metricKey.name !== name || wanted.some(([key, value]) => labels.get(key) !== value)) continue
    const value = "value" in metricState ? metricState.value : "count" in metricState ? metricState.count : undefined
    figures.set(labels.get(label) ?? "", Number(value))
  }
  return figures
}

/** The tables in the metrics of a test's instance, with their bytes. */
const tablesOf = (instance: string) => figuresOf(instance, "postgres_table_bytes", "table")

/** For how long vacuum is held back, by holder. */
const heldOf = (instance: string) => figuresOf(instance, "postgres_vacuum_held_back_seconds", "holder")

/** Waits for all measurements: each has its own query, which may take too long for its limit. */
const measured = (instance: string) => {
  const rows = () => figuresOf(instance, "postgres_table_rows", "table")
  return Effect.repeat(Effect.sleep("5 millis"), {
    until: () => tablesOf(instance).size > 0 && rows().size > 0 && heldOf(instance).size > 0
  })
}

onPostgres("Postgres, sizes of tables", () => {
  live("each table has its size with its indexes, and tables of others count as one", function* () {
    const url = yield* newDatabase
    const first = yield* Effect.tagMetrics(node(url), "test_tables", "first")
    yield* measured("first")
    yield* put(first, "k", "x".repeat(1_000_000))
    const others = Array.from(
      { length: 10 },
      (_, n) => `CREATE TABLE causeway.other${n} AS SELECT n FROM generate_series(1, 1000) n`
    )
    yield* sql(url, ...others)
    yield* Effect.tagMetrics(node(url), "test_tables", "second")
    yield* measured("second")
    const [before, after] = [tablesOf("first"), tablesOf("second")]
    expect([...before.keys()]).toEqual(expect.arrayContaining(["changes", "entries", "events", "remembered_writes"]))
    expect(before.get("other")).toBeUndefined()
    expect(after.get("entries")).toBeGreaterThan(before.get("entries")!)
    expect(after.size).toBeLessThanOrEqual(21)
    const [row] = yield* sql(
      url,
      `SELECT sum(pg_total_relation_size(oid))::int AS bytes FROM pg_class
           WHERE relnamespace = 'causeway'::regnamespace AND relkind = 'r' AND relname ~ '^(entries|changes|other[0-9])$'`
    )
    const named = [...after].filter(([table]) => /^(?:entries|changes|other\d?)$/.test(table))
    expect(named.reduce((sum, [, bytes]) => sum + bytes, 0)).toBe(Number(row!.bytes))
    expect(after.get("other")).toBeGreaterThan(0)
  })

  live("a table that another session has locked delays nothing else", function* () {
    const url = yield* newDatabase
    const first = yield* node(url)
    yield* put(first, "k", 1)
    yield* withClient(url, function* (other) {
      yield* other("BEGIN")
      yield* other("LOCK TABLE causeway.receipts IN ACCESS EXCLUSIVE MODE")
      const second = yield* Effect.tagMetrics(node({ ...optionsOf(url), connections: 1 }), "test_tables", "locked")
      expect(isUnavailable(yield* Effect.either(second.store.get(namespace, "k")))).toBe(false)
      expect(isUnavailable(yield* Effect.either(put(second, "k", 2)))).toBe(false)
      expect(tablesOf("locked").size).toBe(0)
      // The lock of the table does not prevent the metric of its holder.
      yield* Effect.repeat(Effect.sleep("5 millis"), { until: () => heldOf("locked").size > 0 })
      yield* other("ROLLBACK")
    })
  })

  live("have live and dead rows, and for how long a transaction has held vacuum back", function* () {
    const url = yield* newDatabase
    yield* node(url)
    yield* sql(
      url,
      "CREATE TABLE causeway.other AS SELECT n FROM generate_series(1, 1000) n",
      "DELETE FROM causeway.other WHERE n <= 300"
    )
    const statistics = sql(url, "SELECT n_dead_tup::int AS dead FROM pg_stat_user_tables WHERE relname = 'other'")
    yield* Effect.repeat(statistics, { until: ([row]) => row?.dead === 300 })
    yield* withClient(url, function* (other) {
      yield* other("BEGIN")
      yield* other("SELECT pg_current_xact_id(), pg_sleep(0.05)")
      yield* Effect.tagMetrics(node(url), "test_tables", "held")
      yield* measured("held")
      yield* other("PREPARE TRANSACTION 'held'")
      yield* Effect.tagMetrics(node(url), "test_tables", "prepared")
      yield* measured("prepared")
      yield* other("ROLLBACK PREPARED 'held'")
    })
    const rows = (state: string) => figuresOf("held", "postgres_table_rows", "table", { state }).get("other")
    expect([rows("live"), rows("dead")]).toEqual([700, 300])
    const [held, prepared] = [heldOf("held"), heldOf("prepared")]
    expect([...held.keys()].sort()).toEqual(["prepared", "session", "slot", "standby"])
    expect(held.get("session")).toBeGreaterThan(0.05)
    expect([held.get("prepared"), held.get("slot"), held.get("standby")]).toEqual([0, 0, 0])
    expect(prepared.get("prepared")).toBeGreaterThan(0)
  })

  live("a role without rights sees that others hold vacuum back, but not since when", function* () {
    const [url, elsewhere] = yield* Effect.promise(() => Promise.all([createDatabase(), createDatabase()]))
    const role = new URL(url).pathname.slice(1)
    const ask = (asker: string) =>
      Effect.map(sql(url, `SET ROLE ${asker}`, vacuumHolders), rows =>
        rows.filter(({ holder }) => holder === "session")
      )
    yield* sql(url, `CREATE ROLE ${role}`)
    yield* Effect.addFinalizer(() => sql(url, `DROP ROLE ${role}`))
    const begin = (query: (text: string) => Effect.Effect<void>) =>
      Effect.zipRight(query("BEGIN"), query("SELECT pg_current_xact_id()"))
    yield* withClient(elsewhere, function* (other) {
      yield* begin(other)
      expect(yield* ask("NONE")).toEqual([])
    })
    yield* withClient(url, function* (other) {
      yield* begin(other)
      const [all] = yield* ask("NONE")
      const [little] = yield* ask(role)
      expect(all?.seconds).toBeGreaterThan(0)
      expect(little).toMatchObject({ seconds: null, xid: all?.xid })
      expect(little?.age).toBeGreaterThan(0)
    })
  })
})

const minute = 60_000

describe("HeldBack", () => {
  it("is the age of the oldest transaction if the server returns it", () => {
    const held = new HeldBack()
    const found = held.update([["session", 90, "700", 12]], 5000)
    expect(Object.fromEntries(found)).toEqual({ session: 90, prepared: 0, slot: 0, standby: 0 })
    expect(held.update([["session", 20, "750", 3]], 5000 + minute).get("session")).toBe(20)
  })

  it("counts from when the same id was first seen if the server does not return the age", () => {
    const held = new HeldBack()
    const slot = (xid: string, minutes: number) => held.update([["slot", null, xid, 5]], minutes * minute).get("slot")
    expect([slot("700", 10), slot("700", 11), slot("700", 12), slot("720", 13), slot("720", 14)]).toEqual([
      0, 60, 120, 0, 60
    ])
    expect(held.update([], 15 * minute).get("slot")).toBe(0)
    expect(slot("720", 16)).toBe(0)
  })

  it("is nothing while no newer id was given out, as new snapshots have the same one then", () => {
    const held = new HeldBack()
    expect(held.update([["standby", null, "700", 0]], 0).get("standby")).toBe(0)
    expect(held.update([["standby", null, "700", 0]], minute).get("standby")).toBe(0)
    expect(held.update([["standby", null, "700", 4]], 2 * minute).get("standby")).toBe(0)
    expect(held.update([["standby", null, "700", 4]], 3 * minute).get("standby")).toBe(60)
  })

  it("is not below 0, whatever the clock of the server does", () => {
    expect(new HeldBack().update([["session", -3, "700", 0]], 0).get("session")).toBe(0)
    expect(new HeldBack().update([["session", -3, "700", 1]], 0).get("session")).toBe(0)
  })
})
