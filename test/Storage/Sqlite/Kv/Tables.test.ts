/** What the writer counts: namespaces and tenants, also of rows that it has not inserted, and idempotency records. */

import { describe, expect, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect, FastCheck as fc, Layer } from "effect"
import { lifetime } from "../../../../src/Kv/Idempotency.ts"
import { fileOf } from "../../../../src/Storage/Sqlite/Database/Connection.ts"
import { migrate } from "../../../../src/Storage/Sqlite/Database/Opening/Migrations.ts"
import { IdempotencyRecords } from "../../../../src/Storage/Sqlite/Kv/IdempotencyRecords.ts"
import { blockLength, LogSizes } from "../../../../src/Storage/Sqlite/Kv/LogSizes.ts"
import { format, recount } from "../../../../src/Storage/Sqlite/Kv/Schema.ts"
import { writer } from "../../../../src/Storage/Sqlite/Kv/Tables.ts"
import * as Sqlite from "../../../../src/Storage/Sqlite.ts"
import { set } from "../../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"
import { test } from "../../../Tests.ts"
import * as Numbers from "../../Numbers.ts"

const start = 1_700_000_000_000

/** A connection to a new database, and its directory. */
const database = Effect.gen(function* () {
  const directory = yield* temporaryDirectory
  const file = fileOf(directory, format)
  yield* migrate(file, format)
  const db = yield* Effect.acquireRelease(
    Effect.sync(() => new Database(file)),
    db => Effect.sync(() => db.close())
  )
  return { directory, db }
})

/** Inserts rows without the writer, and counts them. */
const fill = (db: Database.Database) => {
  const entry = db.prepare("INSERT INTO entries VALUES (?, ?, 1, 'tester', ?, ?, '1')")
  const tombstone = db.prepare("INSERT INTO tombstones VALUES (?, ?, 2, ?)")
  const change = db.prepare("INSERT INTO changes VALUES (?, ?, ?, ?, ?, 'tester', ?, '', ?)")
  let seq = 0
  db.transaction(() => {
    for (const { expiresAt, key, namespace } of Numbers.entries) {
      entry.run(namespace, key, start, expiresAt)
      change.run(++seq, "set", namespace, key, 1, start, "1")
    }
    for (const { key, namespace } of Numbers.tombstones) {
      tombstone.run(namespace, key, ++seq)
      change.run(seq, "delete", namespace, key, 2, start, null)
    }
    db.exec(recount)
  })()
}

const tablesOf = (db: Database.Database): Numbers.Tables => ({
  entries: db.prepare<[], { readonly namespace: string }>("SELECT namespace FROM entries").all(),
  namespaces: db.prepare<[], [string, number]>("SELECT namespace, entries FROM namespaces").raw().all(),
  tenants: db.prepare<[], [string, number, number]>("SELECT tenant, namespaces, entries FROM tenants").raw().all()
})

describe("the numbers of namespaces and tenants", () => {
  test.scopedLive("are those of all entries, however these are named, and stay so with writes", function* () {
    const { db, directory } = yield* database
    fill(db)
    const counted = tablesOf(db)
    expect(counted.entries).toHaveLength(Numbers.entries.length)
    Numbers.expectCounted(counted)
    yield* Effect.zipRight(Numbers.expectShown, Numbers.change).pipe(
      Effect.provide(Layer.fresh(Sqlite.layer({ directory, writer: "inline" })))
    )
    Numbers.expectCounted(tablesOf(db))
  })

  it.scoped("do not include those of a group that was rolled back", () =>
    Effect.gen(function* () {
      const { db } = yield* database
      const tables = writer(1000).tables(db)
      const commit = db.transaction((...keys: Array<string>) =>
        tables.apply(
          keys.map(key => ({ operations: [set("n", key, 1)], actor: "tester" })),
          start
        )
      )
      expect(() => commit("a", {} as string)).toThrow("Too few parameter values")
      commit("b")
      Numbers.expectCounted(tablesOf(db))
    })
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

describe("writes with idempotency keys", () => {
  test.scoped("count as the bytes of their rows, whatever is removed, replaced or rolled back", function* () {
    const { db } = yield* database
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
        remembered.keep(
          { tenant: `t${(round * round) % 5}`, id, digest: "digest" },
          "x".repeat((13 * round) % 200),
          now
        )
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

  it.scoped("count once if they replace an expired one, and are removed and repeated later", () =>
    Effect.gen(function* () {
      const { db } = yield* database
      // Only the newest has room.
      const remembered = new IdempotencyRecords(db, 1)
      const keep = (id: string, now: number) => {
        remembered.clear()
        expect(remembered.find(id, now)).toBeUndefined()
        remembered.keep({ tenant: "t", id, digest: "digest" }, "x", now)
        remembered.flush(now)
      }
      keep("a", start)
      for (const id of ["a", "b", "a"]) keep(id, start + lifetime)
      expect(tenants(db)).toEqual([["t", 257]])
    })
  )
})

/** A log whose records have these sizes, with the numbers of all records that were looked at. */
const logOf = (sizes: Array<number>) => {
  const looked = { records: 0 }
  const sum = (after: number, upTo: number) => sizes.slice(after, upTo).reduce((total, size) => total + size, 0)
  const log = new LogSizes((after, upTo) => {
    looked.records += upTo - after
    return sum(after, upTo)
  })
  return { log, looked, sum }
}

describe("bounds of the sizes of pages", () => {
  it("are never too low, while the log grows and its start is removed", () => {
    const part = fc.record({
      grow: fc.nat(400),
      trim: fc.nat(300),
      after: fc.nat(),
      limit: fc.integer({ min: 1, max: 1000 })
    })
    fc.assert(
      fc.property(fc.array(part), parts => {
        const sizes: Array<number> = []
        const { log, sum } = logOf(sizes)
        let trimmed = 0
        for (const { after, grow, limit, trim } of parts) {
          for (let count = 0; count < grow; count++) sizes.push(1 + ((sizes.length * 7919) % 1000))
          const end = Math.min(trimmed + trim, sizes.length)
          sizes.fill(0, trimmed, end)
          trimmed = end
          if (sizes.length === 0) continue
          const start = after % sizes.length
          const upTo = Math.min(start + limit, sizes.length)
          expect(log.bound(start, upTo, sizes.length)).toBeGreaterThanOrEqual(sum(start, upTo))
        }
      })
    )
  })

  it("look at each block once, and at the end of the log each time", () => {
    const { log, looked, sum } = logOf(Array.from({ length: 3 * blockLength + 10 }, (_, index) => index))
    const last = 3 * blockLength + 10
    for (let after = 0; after < 2 * blockLength; after++) log.bound(after, after + 100, last)
    expect(looked.records).toBe(3 * blockLength)
    expect(log.bound(last - 20, last, last)).toBe(sum(2 * blockLength, 3 * blockLength) + sum(last - 10, last))
    expect(looked.records).toBe(3 * blockLength + 10)
  })
})
