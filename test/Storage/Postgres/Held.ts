/** The pages that statements visit while a snapshot is held, so that rows deleted since cannot be removed. */
import { Effect } from "effect"
import { constVoid } from "effect/Function"
import pg from "pg"
import type { Operation } from "../../../src/Kv/Write.ts"
import { calling as callingThen, type Parameter, type Query } from "../../../src/Storage/Postgres/Database/Statement.ts"
import { encodeGroup } from "../../../src/Storage/Postgres/Kv/Writer.ts"
import { newStore } from "../../postgres/Databases.ts"
import { live } from "../../postgres/Live.ts"

/** A connection, until the scope closes. */
export const connect = (url: string) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const client = new pg.Client({ connectionString: url })
      await client.connect()
      return client
    }),
    client => Effect.promise(() => client.end())
  )

/** A test with two connections to a new store. */
export const connected = (name: string, body: (client: pg.Client, other: pg.Client) => Promise<void>) =>
  live(name, function* () {
    const url = yield* newStore
    const [client, other] = [yield* connect(url), yield* connect(url)]
    yield* Effect.promise(() => body(client, other))
  })

/** A test with a connection, while another one holds a snapshot. */
export const duringSnapshot = (name: string, body: (client: pg.Client) => Promise<void>) =>
  connected(name, async (client, holder) => {
    await holder.query("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await holder.query("SELECT count(*) FROM causeway.log")
    await body(client)
  })

/** What there is to count and what is counted, of one snapshot. */
export const countsText = `SELECT coalesce((SELECT json_agg(json_build_object('namespace', namespace)) FROM causeway.entries), '[]') AS entries,
  coalesce((SELECT json_agg(json_build_array(namespace, entries)) FROM causeway.namespaces), '[]') AS namespaces,
  coalesce((SELECT json_agg(json_build_array(tenant, namespaces, entries)) FROM causeway.tenants), '[]') AS tenants`

/** The call of a function of the schema. */
export const calling = (name: string, values: ReadonlyArray<Parameter>) => callingThen(name, values, constVoid)

/** Calls a function of the schema. */
export const call = (client: pg.Client, name: string, values: ReadonlyArray<Parameter>) => {
  const { text } = calling(name, values)
  return client.query({ name, text, values: [...values] })
}

/** The parameters of `commit_group` for one write at `now`. */
export const groupOf = (
  operations: ReadonlyArray<Operation>,
  now: number,
  lockFirst = false
): ReadonlyArray<Parameter> => [
  ...[crypto.randomUUID(), now, lockFirst],
  ...encodeGroup([{ operations, actor: "tester" }])
]

interface Plan {
  readonly Plan: { readonly "Shared Hit Blocks": number; readonly "Shared Read Blocks": number }
}

/**
 * How many pages a statement visits, those of the functions that it calls included. It is run before once with the first
 * values, and undone.
 */
export const pagesOf = async (
  client: pg.Client,
  { text, values }: Pick<Query<unknown>, "text" | "values">,
  firstValues = values
): Promise<number> => {
  await client.query("BEGIN")
  // The first time fills caches of the catalog.
  await client.query(text, [...firstValues])
  const { rows } = await client.query(`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${text}`, [...values])
  await client.query("ROLLBACK")
  const { Plan } = (rows[0]["QUERY PLAN"] as ReadonlyArray<Plan>)[0]!
  return Plan["Shared Hit Blocks"] + Plan["Shared Read Blocks"]
}
