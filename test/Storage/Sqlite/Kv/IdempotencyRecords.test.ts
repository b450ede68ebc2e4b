/** The bytes that are counted for tenants with idempotency keys. */

import { describe, expect, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect } from "effect"
import { lifetime } from "../../../../src/Kv/Idempotency.ts"
import type { IdempotencyKey } from "../../../../src/Kv/Write.ts"
import { fileOf } from "../../../../src/Storage/Sqlite/Database/Connection.ts"
import { migrate } from "../../../../src/Storage/Sqlite/Database/Opening/Migrations.ts"
import { IdempotencyRecords } from "../../../../src/Storage/Sqlite/Kv/IdempotencyRecords.ts"
import { format } from "../../../../src/Storage/Sqlite/Kv/Schema.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"

const start = 1_700_000_000_000

const database = Effect.gen(function* () {
  const file = fileOf(yield* temporaryDirectory, format)
  yield* migrate(file, format)
  return yield* Effect.acquireRelease(
    Effect.sync(() => new Database(file)),
    db => Effect.sync(() => db.close())
  )
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
  it.scoped("count as the bytes of their rows, whatever is removed, replaced or rolled back", () =>
    Effect.gen(function* () {
      const db = yield* database
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
