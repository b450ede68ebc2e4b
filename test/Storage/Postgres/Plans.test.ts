/**
 * What statements read of large tables: by an index the rows that they need, and never all of them. The statistics of the
 * server have this, also for what functions and triggers read.
 */
import { expect } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import pg from "pg"
import * as Client from "../../../src/Storage/Postgres/Database/Client.ts"
import * as Snapshots from "../../../src/Storage/Postgres/Database/Snapshots.ts"
import { createStore, execute } from "../../postgres/Databases.ts"
import { live, onPostgres } from "../../postgres/Live.ts"
import type { Case } from "./Plans/Case.ts"
import { content, large } from "./Plans/Content.ts"
import { atStart, portions, reads } from "./Plans/Reads.ts"
import { writes } from "./Plans/Writes.ts"

interface Read {
  readonly scans: number
  readonly rows: number
}

/** A connection as those of the service, with settings. */
const connect = (url: string, settings: ReadonlyArray<string>) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const client = new pg.Client(Client.clientConfig(Redacted.make(url)))
      await client.connect()
      for (const setting of settings) await client.query(`SET ${setting}`)
      return client
    }),
    client => Effect.promise(() => client.end())
  )

/** What this transaction has read of each large table, and what those before it that are not reported yet. */
const statistics = async (client: pg.Client): Promise<ReadonlyMap<string, Read>> => {
  const { rows } = await client.query<Read & { readonly name: string }>(
    `SELECT relname AS name, seq_scan::int AS scans,
       (coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::int AS rows
     FROM pg_stat_xact_user_tables WHERE schemaname = 'causeway' AND relname = ANY ($1)`,
    [large]
  )
  return new Map(rows.map(({ name, rows, scans }) => [name, { scans, rows }]))
}

const none: Read = { scans: 0, rows: 0 }

/** What a case reads that it should not, by table. */
const excess = async (client: pg.Client, { most, name, text, values }: Case) => {
  await client.query("BEGIN")
  const before = await statistics(client)
  await client.query({ name, text, values: [...values] })
  const after = await statistics(client)
  await client.query("ROLLBACK")
  return [...after].flatMap(([table, read]) => {
    const { rows, scans } = before.get(table) ?? none
    const found = { statement: name, table, scans: read.scans - scans, rows: read.rows - rows }
    return found.scans > 0 || found.rows > most ? [found] : []
  })
}

let filled: Promise<string> | undefined

/** A database with content, made once. */
const database = Effect.promise(() => {
  filled ??= (async () => {
    const url = await createStore()
    await execute(url, ...content)
    return url
  })()
  return filled
})

/** How the server plans a statement the first times, how it may from then on, and how it does in snapshots. */
const modes = [
  ["planned for their parameters", ["plan_cache_mode = force_custom_plan"], [...reads, ...atStart, ...writes]],
  ["planned for any parameters", ["plan_cache_mode = force_generic_plan"], [...reads, ...writes]],
  ["of snapshots", Snapshots.planning, portions]
] as const

onPostgres("Postgres, plans", () => {
  for (const [title, settings, cases] of modes) {
    live(`statements ${title} read of large tables what they need, by an index`, function* () {
      const client = yield* connect(yield* database, settings)
      const found = yield* Effect.forEach(cases, each => Effect.promise(() => excess(client, each)))
      expect(found.flat()).toEqual([])
    })
  }
})
