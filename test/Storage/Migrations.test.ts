/**
 * Databases know by number and name which migrations they have had, and never run them again. A released migration that
 * changes, be it by a constant that is part of its text, makes new databases differ from old ones of the same number.
 */
import { createHash } from "node:crypto"
import { readFileSync, writeFileSync } from "node:fs"
import type * as SqlClient from "@effect/sql/SqlClient"
import * as SqliteClient from "@effect/sql-sqlite-node/SqliteClient"
import { expect, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Opening from "../../src/Storage/Postgres/Opening.ts"
import * as Migrations from "../../src/Storage/Sqlite/Database/Migrations.ts"
import { migrations as storeMigrations } from "../../src/Storage/Sqlite/Kv/Schema.ts"
import { migrations as sessionMigrations } from "../../src/Storage/Sqlite/SessionEvents/Schema.ts"

const golden = new URL("../golden/migrations.json", import.meta.url)

/** The SHA-256 of the statements that each migration of a database executes, by its number and name. */
type Digests = Readonly<Record<string, string>>

const keyOf = (version: number, name: string): string => `${version} ${name}`

const digestOf = (executed: ReadonlyArray<unknown>): string =>
  createHash("sha256").update(JSON.stringify(executed)).digest("hex")

/** The statements that the opening of an empty database sends to the server. The answers are those of an empty one. */
const postgres = Effect.gen(function* () {
  const digests: Record<string, string> = {}
  let executed: Array<string> = []
  yield* Opening.migrate((text, values = []) =>
    Effect.sync(() => {
      if (text.startsWith("SELECT to_regnamespace('causeway')")) return [[false, false]]
      if (!text.startsWith("INSERT INTO causeway.migrations")) {
        executed.push(text)
        return []
      }
      // The statements before the first migration prepare all of them. This is the last one.
      const statements = executed.slice(executed.lastIndexOf("SET LOCAL statement_timeout = 0") + 1)
      digests[keyOf(Number(values[0]), String(values[1]))] = digestOf(statements)
      executed = []
      return []
    })
  )
  return digests
})

/** What migrations execute in an empty file, in one transaction or before it. */
const sqlite = (migrations: ReadonlyArray<Migrations.Migration>) =>
  Effect.gen(function* () {
    const client = yield* Migrations.SqlClient.SqlClient
    let executed: Array<unknown> = []
    const recorder: SqlClient.SqlClient = Object.assign(() => Effect.dieMessage("not recorded"), client, {
      unsafe: <A extends object>(text: string, parameters: ReadonlyArray<unknown> = []) => {
        executed.push([text, parameters])
        return client.unsafe<A>(text, parameters)
      }
    } as never)
    const digests: Record<string, string> = {}
    for (const [index, { name, prepare, run }] of migrations.entries()) {
      yield* Effect.provideService(
        Effect.zipRight(prepare ?? Effect.void, run),
        Migrations.SqlClient.SqlClient,
        recorder
      )
      digests[keyOf(index + 1, name)] = digestOf(executed)
      executed = []
    }
    return digests
  }).pipe(Effect.provide(SqliteClient.layer({ filename: ":memory:", disableWAL: true })))

it.effect("a migration executes the same statements as when it was released", () =>
  Effect.gen(function* () {
    const now: Readonly<Record<string, Digests>> = {
      PostgreSQL: yield* postgres,
      "kv.db": yield* sqlite(storeMigrations),
      "sessions.db": yield* sqlite(sessionMigrations)
    }
    const released: Record<string, Digests> = JSON.parse(readFileSync(golden, "utf8"))
    if (process.env.UPDATE_GOLDEN === "1") {
      // New migrations only: a released one is never changed.
      for (const [database, digests] of Object.entries(now)) released[database] = { ...digests, ...released[database] }
      writeFileSync(golden, `${JSON.stringify(released, null, 2)}\n`)
    }
    expect(
      now,
      "A released migration must always execute the same: put new statements into another one. " +
        "UPDATE_GOLDEN=1 adds new migrations to test/golden/migrations.json. " +
        "Delete the line of a changed migration that was not released."
    ).toStrictEqual(released)
  })
)
