/** The removal of change records with the tombstones that they made. */
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { createStore } from "../../../postgres/Databases.ts"
import { reasonToSkip } from "../../../postgres/Server.ts"
import * as Held from "../Held.ts"

const database = Effect.promise(() => createStore())

describe.skipIf(reasonToSkip !== undefined)(`Postgres, retention ${reasonToSkip ?? ""}`, () => {
  it.scopedLive("tombstones that were removed while a snapshot is held are not visited again", () =>
    Effect.gen(function* () {
      const { client } = yield* Held.duringSnapshot(yield* database)
      yield* Effect.promise(async () => {
        const values = "SELECT 'n', 'k' || n, 2, n FROM generate_series(1, 40000) n"
        await client.query(`INSERT INTO causeway.tombstones (namespace, key, version, seq) ${values}`)
        await client.query(
          `INSERT INTO causeway.changes (namespace, key, version, seq, op, actor, timestamp)
           SELECT t.*, 'delete', 'tester', 1000 FROM causeway.tombstones t`
        )
        const pagesAfter = async (portions: number): Promise<number> => {
          for (let portion = 0; portion < portions; portion++) await Held.call(client, "trim", [2000, 500])
          await client.query("ANALYZE causeway.changes, causeway.tombstones")
          return await Held.pagesOf(client, Held.calling("trim", [2000, 50]))
        }
        const few = await pagesAfter(2)
        expect(await pagesAfter(60)).toBeLessThan(few + 40)
        const { rows } = await client.query(
          `SELECT l.trimmed_seq::int, (SELECT min(seq)::int FROM causeway.changes) AS first_record,
             (SELECT min(seq)::int FROM causeway.tombstones) AS first_tombstone FROM causeway.log l`
        )
        expect(rows).toEqual([{ trimmed_seq: 31_000, first_record: 31_001, first_tombstone: 31_001 }])
      })
    })
  )
})
