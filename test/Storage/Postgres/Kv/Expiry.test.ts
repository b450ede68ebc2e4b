/** From where on entries are looked at that have expired. */

import { expect } from "@effect/vitest"
import { Effect } from "effect"
import type pg from "pg"
import type { Query } from "../../../../src/Storage/Postgres/Database/Statement.ts"
import { advanceExpiry } from "../../../../src/Storage/Postgres/Kv/EntryLog.ts"
import * as ListQueries from "../../../../src/Storage/Postgres/Kv/ListQueries.ts"
import * as Namespaces from "../../../../src/Storage/Postgres/Kv/ListQueries.ts"
import * as Queries from "../../../../src/Storage/Postgres/Kv/Queries.ts"
import { newStore } from "../../../postgres/Databases.ts"
import { live, onPostgres } from "../../../postgres/Live.ts"
import { set } from "../../../suites/Store/Fixture.ts"
import * as Held from "../Held.ts"

const namespace = "tenant:t/expiring"

/** Writes entries of names of their own at `now`, which expire at `expiresAt`. */
const write = async (client: pg.Client, name: string, count: number, now: number, expiresAt: number): Promise<void> => {
  const operations = Array.from({ length: count }, (_, index) => set(namespace, `${name}-${index}`, 1, { expiresAt }))
  await Held.call(client, "commit_group", Held.groupOf(operations, now))
}

const expire = async (client: pg.Client, now: number, portion = 500): Promise<number> =>
  Number((await client.query("SELECT expired FROM causeway.expire($1, $2)", [now, portion])).rows[0].expired)

const advance = (client: pg.Client, now: number) => client.query(advanceExpiry(now).text, [now])

const stored = async (client: pg.Client): Promise<number> =>
  Number((await client.query("SELECT count(*) FROM causeway.entries")).rows[0].count)

const position = async (client: pg.Client): Promise<number> =>
  Number((await client.query("SELECT causeway.position('expiry') AS at")).rows[0].at)

const answerOf = async <A>(client: pg.Client, { decode, text, values }: Query<A>): Promise<A> => {
  const { rows } = await client.query({ text, values: [...values], rowMode: "array" })
  return decode(
    rows.map(row => row.map((cell: unknown) => (typeof cell === "string" && /^\d+$/.test(cell) ? Number(cell) : cell)))
  )
}

const counted = (now: number, of = namespace) =>
  ListQueries.entries({ namespace: of, prefix: "", after: "", limit: 2, isCounted: true, now })

const start = 1_700_000_000_000

onPostgres("Postgres, expiry", () => {
  Held.duringSnapshot("what was expired while a snapshot is held is not visited again", async client => {
    const pagesAfter = async (rounds: number, from: number): Promise<ReadonlyArray<number>> => {
      for (let round = from; round < from + rounds; round++) {
        const now = start + 10 * round
        await write(client, `k${round}`, 100, now, now + 5)
        expect(await expire(client, now + 6)).toBe(100)
      }
      const now = start + 10 * (from + rounds)
      const namespaces = { prefix: "", after: "", limit: 10, tenant: "" }
      return [
        await Held.pagesOf(client, counted(now, "other")),
        await Held.pagesOf(client, Queries.due),
        await Held.pagesOf(client, Namespaces.namespaces(namespaces, now)),
        await Held.pagesOf(client, { text: "SELECT * FROM causeway.expire($1, 500)", values: [now] })
      ]
    }
    // A page of the namespace itself would visit its keys, those that are dead included.
    const few = await pagesAfter(3, 0)
    const many = await pagesAfter(30, 3)
    // Indexes may have got a level more.
    for (const [index, pages] of many.entries()) expect(pages).toBeLessThan(few[index]! + 40)
  })

  Held.duringSnapshot(
    "entries that are written again before they expire are not visited where they would have",
    async client => {
      for (let round = 0; round < 30; round++) {
        const now = start + 20_000 * round
        await write(client, "same", 100, now, now + 30_000)
        await advance(client, now)
      }
      const now = start + 20_000 * 29
      expect(await position(client)).toBe(now)
      expect(await Held.pagesOf(client, counted(now))).toBeLessThan(150)
      expect(await expire(client, now + 30_000)).toBe(100)
    }
  )

  Held.duringSnapshot(
    "an entry that has expired when it is written is counted as such, and is expired",
    async client => {
      await write(client, "first", 10, start, start + 5)
      // A portion may end among entries that expire at the same time.
      expect(await expire(client, start + 1000, 4)).toBe(4)
      expect(await expire(client, start + 1000)).toBe(6)
      expect(await position(client)).toBe(start + 1000)
      // By a node whose clock is behind, or that has waited for long.
      await write(client, "late", 10, start, start + 900)
      await write(client, "later", 10, start, start + 500)
      await write(client, "rewritten", 5, start + 1000, start + 90_000)
      await write(client, "rewritten", 5, start + 1000, start + 700)
      await write(client, "lasting", 3, start, start + 90_000)
      const page = await answerOf(client, counted(start + 1001))
      expect(page.count).toBe(3)
      expect((await answerOf(client, Queries.due)).expiresAt).toBe(start + 500)
      expect(await expire(client, start + 1001)).toBe(25)
      expect(await stored(client)).toBe(3)
      // Also one that an operator has inserted.
      await client.query(
        `INSERT INTO causeway.entries (namespace, key, version, updated_at, expires_at, updated_by, value)
           VALUES ('n', 'k', 1, 1, 100, 'tester', '1')`
      )
      expect(await expire(client, start + 1002)).toBe(1)
    }
  )

  live(
    "nothing that is due is before the position, however writes, expiry and its position run at the same time",
    function* () {
      const url = yield* newStore
      const connections = yield* Effect.forEach([0, 1, 2, 3], () => Held.connect(url))
      const reader = yield* Held.connect(url)
      yield* Effect.promise(async () => {
        let tick = 0
        let isDone = false
        const work = connections.map(async (client, index) => {
          for (let round = 0; round < 60; round++) {
            // Clocks of nodes differ by more than entries last.
            const now = start + 5000 * ++tick - 20_000 * (index % 2)
            await write(client, `w${index}-${round % 7}`, 3, now, now + 1 + ((round * 7919) % 30_000))
            if (round % 3 === index % 3) await expire(client, now)
            await advance(client, now)
          }
        })
        const looking = (async () => {
          let looks = 0
          while (!isDone || looks === 0) {
            const { rows } = await reader.query(
              "SELECT count(*) AS lost FROM causeway.entries WHERE expires_at <= causeway.position('expiry')"
            )
            expect(rows[0].lost).toBe("0")
            looks++
          }
        })()
        await Promise.all(work).finally(() => {
          isDone = true
        })
        await looking
        const end = start + 5000 * tick + 40_000
        expect(await expire(reader, end)).toBeGreaterThan(0)
        expect(await stored(reader)).toBe(0)
      })
    }
  )

  Held.connected(
    "an entry that is written after the position was moved by a clock that is ahead expires",
    async client => {
      // Times to come, so that the trigger for entries that have expired does not move the position back.
      const written = Date.now() + 3_600_000
      await write(client, "lasting", 1, written, written + 86_400_000)
      await advance(client, written + 60_000)
      await write(client, "short", 1, written + 1000, written + 30_000)
      expect(await expire(client, written + 40_000)).toBe(1)
      expect(await stored(client)).toBe(1)
    }
  )

  Held.connected("a store that is emptied has no position left of before", async client => {
    await write(client, "k", 1, start, start + 5)
    expect(await expire(client, start + 1000)).toBe(1)
    await client.query("TRUNCATE causeway.entries")
    expect(await position(client)).toBe(0)
  })
})
