/** Writes with idempotency keys in a database of an earlier schema, and the bytes that are counted for tenants. */

import { describe, expect, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect, Layer } from "effect"
import { lifetime } from "../../../../src/Kv/Idempotency.ts"
import { Store } from "../../../../src/Kv/Store.ts"
import type { IdempotencyKey, Write } from "../../../../src/Kv/Write.ts"
import { fileOf } from "../../../../src/Storage/Sqlite/Database/Connection.ts"
import { migrate } from "../../../../src/Storage/Sqlite/Database/Migrations.ts"
import { IdempotencyRecords } from "../../../../src/Storage/Sqlite/Kv/IdempotencyRecords.ts"
import { format } from "../../../../src/Storage/Sqlite/Kv/Writer.ts"
import * as Sqlite from "../../../../src/Storage/Sqlite.ts"
import { del } from "../../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"

const start = 1_700_000_000_000

/** A database with the tables of a schema. */
const databaseOf = (schema: number) =>
  Effect.gen(function* () {
    const directory = yield* temporaryDirectory
    const { migrations } = yield* Effect.promise(format.load)
    const file = fileOf(directory, format)
    yield* migrate(file, format.applicationId, migrations.slice(0, schema))
    return {
      directory,
      db: yield* Effect.acquireRelease(
        Effect.sync(() => new Database(file)),
        db => Effect.sync(() => db.close())
      )
    }
  })

const rows = (db: Database.Database) =>
  db
    .prepare(
      "SELECT tenant, count(*) AS writes, sum(256 + length(outcome)) AS bytes FROM remembered_writes GROUP BY tenant"
    )
    .all()

const tenants = (db: Database.Database) =>
  db.prepare("SELECT tenant, bytes FROM remembered_tenants ORDER BY tenant").raw().all()

const keyOf = (tenant: string, id: string): IdempotencyKey => ({ tenant, id, digest: "digest" })

describe("writes with idempotency keys", () => {
  it.scopedLive("of an earlier schema are known, and belong to no tenant", () =>
    Effect.gen(function* () {
      const { db, directory } = yield* databaseOf(5)
      const now = Date.now()
      db.exec(
        `INSERT INTO remembered_writes VALUES (300, 'a', 'digest', ${now}, '${now},7,-1'), (700, 'b', 'digest', ${now}, '${now},8,-1')`
      )
      db.close()
      const write = (id: string): Write => ({
        operations: [del("n", "none")],
        actor: "a",
        idempotencyKey: keyOf("t", id)
      })
      const outcomes = yield* Effect.forEach(["a", "b", "c"], id =>
        Effect.flatMap(Store, store => store.commit(write(id)))
      ).pipe(Effect.provide(Layer.fresh(Sqlite.layer({ directory, writer: "inline" }))))
      expect(outcomes.map(({ isReplay = false, lastSeq }) => ({ isReplay, lastSeq }))).toEqual([
        { isReplay: true, lastSeq: 7 },
        { isReplay: true, lastSeq: 8 },
        { isReplay: false, lastSeq: 0 }
      ])
      const after = new Database(fileOf(directory, format), { readonly: true })
      const bytes = 256 + `${now},7,-1`.length
      expect(tenants(after)).toEqual([
        ["", 2 * bytes],
        ["t", 256 + `${now},0,-1`.length]
      ])
      after.close()
    })
  )

  it.scoped("count as the bytes of their rows, whatever is removed, replaced or rolled back", () =>
    Effect.gen(function* () {
      const { db } = yield* databaseOf(6)
      const limit = 40 * 300
      const remembered = new IdempotencyRecords(db, limit)
      let now = start
      for (let round = 0; round < 300; round++) {
        now += round % 50 === 49 ? lifetime : 1000
        remembered.clear()
        db.exec("BEGIN")
        for (let index = 0; index < 1 + (round % 3); index++) {
          // Some ids come again, some of them for another tenant.
          const id = `${(7 * round + index) % 90}`
          if (remembered.find(id, now) !== undefined) continue
          remembered.keep(keyOf(`t${(round * round) % 5}`, id), "x".repeat((13 * round) % 200), now)
        }
        remembered.flush(now)
        db.exec(round % 7 === 3 ? "ROLLBACK" : "COMMIT")
        const counted = new Map(tenants(db) as ReadonlyArray<[string, number]>)
        for (const { bytes, tenant } of rows(db) as ReadonlyArray<{ tenant: string; bytes: number }>) {
          expect([tenant, counted.get(tenant)]).toEqual([tenant, bytes])
          counted.delete(tenant)
        }
        // A tenant without writes has a row until the next comparison.
        expect([...counted.values()].filter(bytes => bytes !== 0)).toEqual([])
      }
      const [total] = db.prepare("SELECT sum(bytes) FROM remembered_tenants").pluck().all() as [number]
      expect(total).toBeLessThanOrEqual(limit)
      expect(total).toBeGreaterThan(limit / 2)
    })
  )
})
