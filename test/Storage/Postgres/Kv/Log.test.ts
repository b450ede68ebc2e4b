/** What is removed of the log, and of the commit records, by which nodes learn the outcome of a lost call. */

import { describe, expect, it } from "@effect/vitest"
import { Effect, Fiber, Option } from "effect"
import type pg from "pg"
import { LastSeq } from "../../../../src/Storage/Commit/StoreCommit.ts"
import { LogEnd } from "../../../../src/Storage/Postgres/Kv/LogEnd.ts"
import { onPostgres } from "../../../postgres/Live.ts"
import { test } from "../../../Tests.ts"
import * as Held from "../Held.ts"

/** Adds records, or fences, of a past time. */
const add = (client: pg.Client, count: number, age: string, result: string | null) =>
  client.query(
    `INSERT INTO causeway.commits (id, at, result)
     SELECT gen_random_uuid(), clock_timestamp() - $1::interval, $2 FROM generate_series(1, $3::int)`,
    [age, result, count]
  )

const prune = async (client: pg.Client, portion: number): Promise<number> =>
  (await client.query("SELECT causeway.prune_commits($1) AS removed", [portion])).rows[0].removed

const left = async (client: pg.Client) =>
  (await client.query("SELECT count(result)::int AS records, count(*)::int AS all FROM causeway.commits")).rows[0]

onPostgres("Postgres, the log and commit records", () => {
  Held.connected("records are removed after a minute by portions, and fences after an hour", async client => {
    await add(client, 5, "2 minutes", "1,0")
    await add(client, 1, "0 minutes", "1,0")
    await add(client, 1, "2 minutes", null)
    await add(client, 2, "2 hours", null)
    expect(await prune(client, 3)).toBe(3)
    expect(await left(client)).toEqual({ records: 3, all: 4 })
    expect(await prune(client, 3)).toBe(2)
    expect(await prune(client, 3)).toBe(0)
    expect(await left(client)).toEqual({ records: 1, all: 2 })
  })

  Held.connected(
    "one node removes them at a time, also after the clock of the database was set back",
    async (client, other) => {
      await client.query(
        `UPDATE causeway.positions SET up_to = (extract(epoch FROM now() + interval '1 hour') * 1000000)::bigint
           WHERE name = 'commits'`
      )
      await add(client, 2, "2 minutes", "1,0")
      await client.query("BEGIN")
      expect(await prune(client, 1)).toBe(1)
      expect(await prune(other, 1)).toBe(0)
      await client.query("COMMIT")
      expect(await prune(other, 10)).toBe(1)
    }
  )

  Held.duringSnapshot("removed records are not visited again while a snapshot is held", async client => {
    const pagesAfter = async (rounds: number): Promise<number> => {
      for (let round = 0; round < rounds; round++) {
        await add(client, 500, "2 minutes", "1,0")
        expect(await prune(client, 1000)).toBe(500)
      }
      await add(client, 1, "2 minutes", "1,0")
      const pages = await Held.pagesOf(client, Held.calling("prune_commits", [1000]))
      expect(await prune(client, 1000)).toBe(1)
      return pages
    }
    const few = await pagesAfter(2)
    expect(await pagesAfter(30)).toBeLessThan(few + 40)
  })

  Held.duringSnapshot("tombstones that were removed while a snapshot is held are not visited again", async client => {
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

/** Reads the end, and returns whether the log lacks changes. */
const check = (end: LogEnd, lastSeq: number, epoch = "e") =>
  Effect.gen(function* () {
    let isCut = false
    const renew = () =>
      Effect.sync(() => {
        isCut = true
      })
    yield* end.read(Effect.succeed({ epoch, lastSeq }), renew)
    return isCut
  })

describe("a log that was cut", () => {
  test.effect("is noticed after it has grown again by a group of this node", function* () {
    const end = new LogEnd()
    end.sending()
    end.committed(1, 0)
    // Two changes of another node, which are then lost.
    expect(yield* check(end, 3)).toBe(false)
    end.sending()
    end.committed(3, 1)
    expect(yield* check(end, 3)).toBe(true)
    expect(yield* check(end, 3, "renewed")).toBe(false)
    end.sending()
    end.committed(4, 3)
    expect(yield* check(end, 4, "renewed")).toBe(false)
  })

  test.effect("is not assumed because of what others commit while a group is sent", function* () {
    const end = new LogEnd()
    expect(yield* check(end, 5)).toBe(false)
    end.sending()
    // The answer of the group comes after a read that has seen later changes.
    expect(yield* check(end, 9)).toBe(false)
    end.committed(6, 5)
    expect(yield* check(end, 9)).toBe(false)
  })

  test.effect("is not assumed after a new epoch, which may begin while a group is sent", function* () {
    const end = new LogEnd()
    expect(yield* check(end, 5)).toBe(false)
    end.sending()
    expect(yield* check(end, 2, "other")).toBe(false)
    end.committed(3, 2)
    expect(yield* check(end, 3, "other")).toBe(false)
  })
})

it.effect("who waits for more than another log has is woken when that takes the place of the log", () =>
  Effect.gen(function* () {
    const end = new LastSeq()
    end.set(5)
    const waiting = yield* Effect.fork(end.awaitPast(5))
    yield* Effect.yieldNow()
    end.set(3)
    yield* Effect.yieldNow()
    expect(Option.isSome(yield* Fiber.poll(waiting))).toBe(true)
  })
)
