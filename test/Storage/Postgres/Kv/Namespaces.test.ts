/** The numbers of namespaces and tenants that a database of an earlier schema gets. */
import { describe, expect, it } from "@effect/vitest"
import { Context, Effect, Exit, Fiber, Redacted } from "effect"
import { ChangeLog } from "../../../../src/Kv/ChangeLog.ts"
import { Store } from "../../../../src/Kv/Store.ts"
import * as Opening from "../../../../src/Storage/Postgres/Opening.ts"
import { migrations } from "../../../../src/Storage/Postgres/Schema.ts"
import { execute, optionsOf } from "../../../postgres/Databases.ts"
import * as Opened from "../../../postgres/Opened.ts"
import * as Proxy from "../../../postgres/Proxy.ts"
import { reasonToSkip } from "../../../postgres/Server.ts"
import * as Numbers from "../../Numbers.ts"
import { databaseAt, node, quiet } from "../Fixture.ts"

const run = (url: string, ...statements: ReadonlyArray<string>) => Effect.promise(() => execute(url, ...statements))

const schemaBefore = (migration: string): number => migrations.findIndex(({ name }) => name === migration)

const literal = (value: string | number | null): string =>
  typeof value === "string" ? `'${value.replaceAll("'", "''")}'` : String(value)

const rows = (all: ReadonlyArray<ReadonlyArray<string | number | null>>): string =>
  all.map(values => `(${values.map(literal).join()})`).join()

/** A database with a store as the version with this schema left it. */
const filledAt = (schema: number) =>
  Effect.gen(function* () {
    const url = yield* databaseAt(schema)
    const { entries, tombstones } = Numbers
    const changes = [
      ...entries.map(({ key, namespace }) => ["set", namespace, key, 1, "1"] as const),
      ...tombstones.map(({ key, namespace }) => ["delete", namespace, key, 2, null] as const)
    ]
    yield* run(
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

const tablesOf = (url: string) =>
  Effect.map(
    run(
      url,
      `SELECT (SELECT json_agg(json_build_object('namespace', namespace)) FROM causeway.entries) AS entries,
         (SELECT json_agg(json_build_array(namespace, entries)) FROM causeway.namespaces) AS namespaces,
         (SELECT json_agg(json_build_array(tenant, namespaces, entries)) FROM causeway.tenants) AS tenants`
    ),
    ([row]) => row as unknown as Numbers.Tables
  )

/** Expects a store to have all numbers, also after writes. */
const expectNumbers = (url: string) =>
  Effect.gen(function* () {
    const { log, store } = yield* node(optionsOf(url))
    Numbers.expectCounted(yield* tablesOf(url))
    const context = Context.make(Store, store).pipe(Context.add(ChangeLog, log))
    yield* Effect.provide(Effect.zipRight(Numbers.expectShown, Numbers.change), context)
    Numbers.expectCounted(yield* tablesOf(url))
  })

describe.skipIf(reasonToSkip !== undefined)(`Postgres, namespaces and tenants ${reasonToSkip ?? ""}`, () => {
  for (const migration of ["namespaces", "tenants", "changes of counts"]) {
    it.scopedLive(`a store of an earlier schema has their numbers (before the migration ${migration})`, () =>
      Effect.gen(function* () {
        const url = yield* filledAt(schemaBefore(migration))
        yield* Opened.open(url)
        expect((yield* tablesOf(url)).entries).toHaveLength(Numbers.entries.length)
        yield* expectNumbers(url)
      })
    )
  }

  it.scopedLive("they are complete after a migration whose node was killed half-way", () =>
    Effect.gen(function* () {
      const schema = schemaBefore("tenants")
      for (const statement of ["CREATE TABLE causeway.tenants", "INSERT INTO causeway.tenants (", "identify()"]) {
        const url = yield* filledAt(schema)
        const proxy = yield* Proxy.make(url)
        proxy.set("black hole", statement)
        const opening = yield* Effect.fork(Effect.exit(Opening.open(Redacted.make(proxy.url))))
        yield* Effect.promise(() => proxy.affected)
        // As the server sees a node whose process is killed.
        yield* Effect.promise(() => proxy.cut(true))
        expect(Exit.isFailure(yield* Fiber.join(opening))).toBe(true)
        expect((yield* run(url, "SELECT max(version) AS version FROM causeway.migrations"))[0]?.version).toBe(schema)
        yield* expectNumbers(url)
      }
    }).pipe(Effect.provide(quiet))
  )
})
