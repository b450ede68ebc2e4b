/** The numbers of namespaces and tenants, also of rows that are written by hand. */
import { expect } from "@effect/vitest"
import { Context, Effect } from "effect"
import { ChangeLog } from "../../../../src/Kv/ChangeLog.ts"
import { Store } from "../../../../src/Kv/Store.ts"
import { newStore, sql } from "../../../postgres/Databases.ts"
import { live, onPostgres } from "../../../postgres/Live.ts"
import * as Numbers from "../../Numbers.ts"
import { node } from "../Fixture.ts"
import * as Held from "../Held.ts"

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
