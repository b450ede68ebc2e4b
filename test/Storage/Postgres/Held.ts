/** The pages that statements visit while a snapshot is held, so that rows deleted since cannot be removed. */
import { Effect } from "effect"
import pg from "pg"
import type { Parameter } from "../../../src/Storage/Postgres/Database/Statement.ts"

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

/** A connection, while another one holds a snapshot. */
export const duringSnapshot = (url: string) =>
  Effect.gen(function* () {
    const holder = yield* connect(url)
    yield* Effect.promise(async () => {
      await holder.query("BEGIN ISOLATION LEVEL REPEATABLE READ")
      await holder.query("SELECT count(*) FROM causeway.log")
    })
    return { client: yield* connect(url) }
  })

/** Calls a function of the schema. */
export const call = (client: pg.Client, name: string, values: ReadonlyArray<Parameter>) =>
  client.query({
    name,
    text: `SELECT causeway.${name}(${values.map((_, index) => `$${index + 1}`).join(", ")})`,
    values: [...values]
  })

interface Plan {
  readonly Plan: { readonly "Shared Hit Blocks": number; readonly "Shared Read Blocks": number }
}

/**
 * How many pages a statement visits, those of the functions that it calls included. It is run before once with the first
 * values, and undone.
 */
export const pagesOf = async (
  client: pg.Client,
  { statement, values }: { readonly statement: { readonly text: string }; readonly values: ReadonlyArray<Parameter> },
  firstValues = values
): Promise<number> => {
  await client.query("BEGIN")
  // The first time fills caches of the catalog.
  await client.query(statement.text, [...firstValues])
  const { rows } = await client.query(`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${statement.text}`, [...values])
  await client.query("ROLLBACK")
  const { Plan } = (rows[0]["QUERY PLAN"] as ReadonlyArray<Plan>)[0]!
  return Plan["Shared Hit Blocks"] + Plan["Shared Read Blocks"]
}
