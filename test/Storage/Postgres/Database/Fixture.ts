/** What tests of connections ask of a server. */
import { randomUUID } from "node:crypto"
import { Effect } from "effect"
import type { Pool } from "../../../../src/Storage/Postgres/Database/Pool.ts"
import { first, type Query } from "../../../../src/Storage/Postgres/Database/Statement.ts"
import { execute, sql } from "../../../postgres/Databases.ts"

/** The function that a statement calls. Others are fences. */
export const calledBy = ({ text }: Pick<Query<unknown>, "text">): string =>
  /^SELECT causeway\.(\w+)\(/.exec(text)?.[1] ?? "fence"

/** A query that returns 1. */
export const one: Query<number> = { text: "SELECT 1", values: [], decode: first }

/** Reads 1. On a busy machine a new connection may take longer than a node waits for it, so that a caller tries again. */
export const readOne = (pool: Pool) =>
  Effect.retry(pool.read(one), { times: 10, while: ({ reason }) => /time-?out/i.test(reason) })

/** The number of connections of nodes to a database. */
export const count = (url: string) =>
  Effect.promise(async () => {
    const [row] = await execute(
      url,
      `SELECT count(*)::int AS count FROM pg_stat_activity
       WHERE datname = current_database() AND application_name = 'causeway'`
    )
    return Number(row!.count)
  })

/** A role that may have a number of connections. `admin` is the address of the database for a superuser. */
export const limitedRole = (admin: string, limit: number) =>
  Effect.gen(function* () {
    const role = `few_${randomUUID().replaceAll("-", "")}`
    const setLimit = (limit: number) => sql(admin, `ALTER ROLE ${role} CONNECTION LIMIT ${limit}`)
    yield* sql(admin, `CREATE ROLE ${role} LOGIN`)
    yield* setLimit(limit)
    return { url: admin.replace("postgres@", `${role}@`), setLimit }
  })
