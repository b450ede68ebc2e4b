/** Commits to tables most of whose rows are dead, so that the planner expects the tables to be empty. */
import { expect } from "@effect/vitest"
import type pg from "pg"
import type { Operation } from "../../../../src/Kv/Write.ts"
import * as WriteCalls from "../../../../src/Storage/Postgres/Kv/Writer.ts"
import { onPostgres } from "../../../postgres/Live.ts"
import { onlyLong } from "../../../Scale.ts"
import { del, set } from "../../../suites/Store/Fixture.ts"
import * as Held from "../Held.ts"

const now = 1_700_000_000_000
const namespace = "tenant:t/rows"

const groupOf = (operations: ReadonlyArray<Operation>) => Held.groupOf(operations, now)

/** A group of one write with an idempotency key. */
const keyedGroupOf = (id: string, limitBytes: number) => {
  const write = {
    operations: [set(namespace, `key of ${id}`, 1)],
    actor: "tester",
    idempotencyKey: { tenant: "t", id, digest: "digest" }
  }
  return [
    ...[crypto.randomUUID(), now, false, ...WriteCalls.encodeGroup([write])],
    ...WriteCalls.encodeKeys([write], { limitBytes, compares: false })
  ]
}

const commit = (client: pg.Client, operations: ReadonlyArray<Operation>) =>
  Held.call(client, "commit_group", groupOf(operations))

onPostgres("Postgres, dead rows", () => {
  Held.duringSnapshot("a commit looks its keys up, and visits no dead rows", async client => {
    await client.query(
      `INSERT INTO causeway.entries (namespace, key, version, updated_at, updated_by, value)
           SELECT $1, 'dead' || n, 1, 1, 'tester', '1' FROM generate_series(1, 20000) n`,
      [namespace]
    )
    await client.query(
      `INSERT INTO causeway.tombstones (namespace, key, version, seq)
           SELECT $1, 'dead' || n, 1, n FROM generate_series(1, 20000) n`,
      [namespace]
    )
    await client.query("DELETE FROM causeway.entries; DELETE FROM causeway.tombstones")
    await client.query("ANALYZE causeway.entries, causeway.tombstones")
    await commit(
      client,
      ["live1", "live2", "gone1", "gone2"].map(key => set(namespace, key, 1))
    )
    await commit(
      client,
      ["gone1", "gone2"].map(key => del(namespace, key))
    )
    const cases: Readonly<Record<string, (n: 1 | 2) => ReadonlyArray<Operation>>> = {
      "a new key": n => [set(namespace, `new${n}`, 1)],
      "an entry": n => [set(namespace, `live${n}`, 2)],
      "a delete": n => [del(namespace, `live${n}`)],
      "a deleted key": n => [set(namespace, `gone${n}`, 2)],
      "a condition that is not met": n => [set(namespace, `live${n}`, 2, { precondition: { match: [9] } })],
      "a delete of a deleted key, among others": n => [set(namespace, `other${n}`, 1), del(namespace, `gone${n}`)]
    }
    for (const [name, operations] of Object.entries(cases)) {
      const pages = await Held.pagesOf(
        client,
        Held.calling("commit_group", groupOf(operations(2))),
        groupOf(operations(1))
      )
      expect(pages, name).toBeLessThan(100)
    }
  })

  Held.duringSnapshot("a comparison of the tenants visits no dead totals if most are dead", async client => {
    await client.query(
      `INSERT INTO causeway.remembered_tenants (tenant, bytes, up_to)
           SELECT 't', 300, n - 100000 FROM generate_series(1, 40000) n`
    )
    await client.query("DELETE FROM causeway.remembered_tenants")
    await client.query("ANALYZE causeway.remembered_tenants")
    for (const id of ["a", "b", "c"]) await Held.call(client, "commit_keyed", keyedGroupOf(id, 700))
    const { rows } = await client.query(
      "SELECT t.tenant, t.bytes = sum(256 + length(w.outcome)) AS is_sum FROM causeway.remembered_tenants t, causeway.remembered_writes w GROUP BY t.tenant, t.bytes"
    )
    expect(rows).toEqual([{ tenant: "t", is_sum: true }])
    const pages = await Held.pagesOf(
      client,
      Held.calling("commit_keyed", keyedGroupOf("measured", 700)),
      keyedGroupOf("measured before", 700)
    )
    expect(pages).toBeLessThan(250)
  })

  onlyLong(Held.duringSnapshot)(
    "a commit with an idempotency key visits as much after many of them as after few, while a snapshot is held",
    async client => {
      // With the lower limit each commit compares the tenants, and removes old records.
      const limits = { "far below the limit": 1e9, "at the limit": 30_000 }
      let written = 0
      const pagesAfter = async (count: number, limitBytes: number): Promise<number> => {
        for (const end = written + count; written < end; written++) {
          await Held.call(client, "commit_keyed", keyedGroupOf(`id${written}`, limitBytes))
        }
        return await Held.pagesOf(
          client,
          Held.calling("commit_keyed", keyedGroupOf("measured", limitBytes)),
          keyedGroupOf("measured before", limitBytes)
        )
      }
      for (const [name, limitBytes] of Object.entries(limits)) {
        const few = await pagesAfter(300, limitBytes)
        expect(await pagesAfter(3000, limitBytes), name).toBeLessThan(few + 40)
      }
    }
  )
})
