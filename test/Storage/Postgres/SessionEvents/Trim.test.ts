/** How events are removed from histories: with an append, and by age. */

import { expect } from "@effect/vitest"
import { Effect } from "effect"
import type pg from "pg"
import * as SessionWriter from "../../../../src/Storage/Postgres/SessionEvents/SessionWriter.ts"
import { newStore } from "../../../postgres/Databases.ts"
import { live, onPostgres } from "../../../postgres/Live.ts"
import * as Held from "../Held.ts"

const minute = 60_000
const session = "t/s"
const node = "11111111-1111-4111-8111-111111111111"
const holder: SessionWriter.LeaseHolder = { node, lease: minute, tokenOf: () => 1 }

const parametersOf = (writes: ReadonlyArray<SessionWriter.EventWrite>, mostEvents = 1e6) => [
  crypto.randomUUID(),
  ...SessionWriter.encode(writes, holder, { events: mostEvents, bytes: 1e9 }).parameters
]

/** A history that the node owns, without events. */
const addHistory = (client: pg.Client) =>
  client.query("INSERT INTO causeway.histories (session, epoch, owner, token) VALUES ($1, 'e', $2, 1)", [session, node])

const append = (after: number, count: number, timestamp: number, receipt?: string): SessionWriter.EventWrite => ({
  op: "append",
  session,
  epoch: "e",
  after,
  timestamp,
  texts: Array.from({ length: count }, (_, index) => `event ${after + 1 + index}`),
  recoveryState: null,
  receipt: receipt === undefined ? undefined : { id: receipt, digest: "digest", turnId: null }
})

const write = async (client: pg.Client, ...writes: ReadonlyArray<SessionWriter.EventWrite>): Promise<void> => {
  const { rows } = await Held.call(client, "write_sessions", parametersOf(writes))
  expect(Object.values(rows[0])).toEqual([`[${writes.map(() => "null").join(",")}]`])
}

const trim = async (client: pg.Client, before: number, portion = 500): Promise<number> =>
  Number((await client.query("SELECT causeway.trim_sessions($1, $2) AS removed", [before, portion])).rows[0].removed)

/** The numbers of the events that are left, with what the history says of them. */
const left = async (client: pg.Client) => {
  const { rows } = await client.query(
    `SELECT h.head::int, h.trimmed::int, h.bytes = coalesce(sum(e.size), 0) AS has_bytes,
       coalesce(array_agg(e.seq::int ORDER BY e.seq) FILTER (WHERE e.seq IS NOT NULL), '{}') AS seqs
     FROM causeway.histories h LEFT JOIN causeway.events e ON e.history = h.id WHERE h.session = $1 GROUP BY h.id`,
    [session]
  )
  return rows[0]
}

const position = async (client: pg.Client): Promise<number> =>
  Number((await client.query("SELECT causeway.position('events') AS at")).rows[0].at)

onPostgres("Postgres, removal of events", () => {
  Held.duringSnapshot(
    "an append visits no events and receipts that were removed while a snapshot is held",
    async client => {
      await addHistory(client)
      const [kept, now] = [500, Date.now()]
      const appending = (after: number, count: number) => parametersOf([append(after, count, now, `m${after}`)], kept)
      let head = 0
      const pagesAfter = async (rounds: number): Promise<number> => {
        for (let round = 0; round < rounds; round++, head += kept) {
          await Held.call(client, "write_sessions", appending(head, kept))
        }
        await client.query("ANALYZE causeway.events, causeway.receipts")
        return await Held.pagesOf(client, Held.calling("write_sessions", appending(head + 1, 1)), appending(head, 1))
      }
      const few = await pagesAfter(5)
      // The versions of the history are visited: two for each append.
      expect(await pagesAfter(40)).toBeLessThan(few + 60)
      expect(await left(client)).toMatchObject({ head: 45 * kept, trimmed: 44 * kept, has_bytes: true })
      expect((await client.query("SELECT seq::int FROM causeway.receipts")).rows).toEqual([{ seq: 45 * kept }])
    }
  )

  Held.duringSnapshot(
    "the removal by age visits no events that were removed while a snapshot is held",
    async client => {
      await addHistory(client)
      const start = Date.now() - 10 * 24 * 60 * minute
      await client.query("UPDATE causeway.histories SET head = 40000, bytes = 400000")
      await client.query(
        `INSERT INTO causeway.events (history, seq, timestamp, size, text)
           SELECT h.id, n, $1::bigint + n, 10, '0123456789' FROM causeway.histories h, generate_series(1, 40000) n`,
        [start]
      )
      const pagesAfter = async (count: number): Promise<number> => {
        for (let portion = 0; portion < count; portion++) expect(await trim(client, start + 30_000)).toBe(500)
        await client.query("ANALYZE causeway.events")
        return await Held.pagesOf(client, Held.calling("trim_sessions", [start + 30_000, 50]))
      }
      const few = await pagesAfter(2)
      expect(await pagesAfter(50)).toBeLessThan(few + 60)
      expect(await trim(client, start + 30_000, 5000)).toBe(3999)
      expect(await position(client)).toBe(start + 29_999)
      expect(await trim(client, start + 30_000)).toBe(0)
      expect(await left(client)).toMatchObject({ trimmed: 29_999, has_bytes: true })
      // An earlier time leaves the position where it is.
      expect(await trim(client, start)).toBe(0)
      expect(await position(client)).toBe(start + 29_999)
    }
  )

  Held.connected("events of a node whose clock is behind are removed too", async (client, other) => {
    await addHistory(client)
    const now = Date.now()
    await write(client, append(0, 2, now - 100 * minute))
    // A portion may end among events of the same time.
    expect(await trim(client, now - 60 * minute, 1)).toBe(1)
    expect(await trim(client, now - 60 * minute)).toBe(1)
    expect(await position(client)).toBe(now - 60 * minute - 1)
    // One of them commits after the others are removed.
    await write(client, append(2, 3, now - 70 * minute), append(5, 3, now - 80 * minute))
    await other.query("BEGIN")
    await other.query("INSERT INTO causeway.histories (session, epoch, owner, token) VALUES ('t/z', 'e', $1, 1)", [
      node
    ])
    await write(other, { ...append(0, 1, now - 90 * minute), session: "t/z" } as SessionWriter.EventWrite)
    expect(await trim(client, now - 60 * minute, 3)).toBe(6)
    expect(await trim(client, now - 60 * minute)).toBe(0)
    await other.query("COMMIT")
    expect(await trim(client, now - 60 * minute)).toBe(1)
    expect(await left(client)).toEqual({ head: 8, trimmed: 8, has_bytes: true, seqs: [] })
    const { rows } = await client.query("SELECT name FROM causeway.positions WHERE name IN ('events', 'late events')")
    expect(rows).toEqual([{ name: "events" }])
  })

  live(
    "events younger than the position may be are found, also after the clock of the database was set back",
    function* () {
      const client = yield* Held.connect(yield* newStore)
      yield* Effect.promise(async () => {
        await addHistory(client)
        const now = Date.now()
        await write(client, append(0, 1, now - 5 * minute))
        expect(await trim(client, now)).toBe(1)
        await write(client, append(1, 1, now - 5 * minute))
        expect(await trim(client, now)).toBe(1)
        expect(await position(client)).toBeLessThan(now - 10 * minute)
        await client.query("UPDATE causeway.positions SET up_to = $1 WHERE name = 'events'", [now + 60 * minute])
        await write(client, append(2, 1, now - 5 * minute))
        expect(await trim(client, now)).toBe(1)
      })
    }
  )

  Held.connected("one node removes events at a time", async (client, other) => {
    await addHistory(client)
    const now = Date.now()
    await write(client, append(0, 2, now))
    await other.query("SET lock_timeout = 1000")
    await client.query("BEGIN")
    expect(await trim(client, now + 1)).toBe(2)
    expect(await trim(other, now + 1)).toBe(0)
    await client.query("ROLLBACK")
    expect(await trim(other, now + 1)).toBe(2)
  })

  live(
    "a history that is removed and begins again while old events of it are removed keeps its new ones",
    function* () {
      const url = yield* newStore
      const [client, other] = [yield* Held.connect(url), yield* Held.connect(url)]
      yield* Effect.promise(async () => {
        await addHistory(client)
        const now = Date.now()
        await write(client, append(0, 10, now - 100 * minute))
        await client.query("BEGIN")
        await write(client, { op: "remove", session })
        await addHistory(client)
        await write(client, append(0, 3, now))
        const { rows } = await other.query("SELECT pg_backend_pid() AS pid")
        const trimmed = trim(other, now - 60 * minute)
        for (;;) {
          const { rowCount } = await client.query("SELECT FROM pg_locks WHERE pid = $1 AND NOT granted", [rows[0].pid])
          if (rowCount! > 0) break
        }
        await client.query("COMMIT")
        expect(await trimmed).toBe(0)
        expect(await left(client)).toEqual({ head: 3, trimmed: 0, has_bytes: true, seqs: [1, 2, 3] })
      })
    }
  )
})
