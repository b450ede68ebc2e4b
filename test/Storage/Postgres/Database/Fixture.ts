/** What tests of connections ask of a server. */
import { randomUUID } from "node:crypto"
import { Effect } from "effect"
import { first, type Query } from "../../../../src/Storage/Postgres/Database/Statement.ts"
import { execute, sql } from "../../../postgres/Databases.ts"

/** A query that returns 1. */
/** The function that a statement calls. Others are fences. */
export const calledBy = ({ text }: Pick<Query<unknown>, "text">): string =>
  /^SELECT causeway\.(\w+)\(/.exec(text)?.[1] ?? "fence"

export const one: Query<number> = { text: "SELECT 1", values: [], decode: first }

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
