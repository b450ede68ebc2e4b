/**
 * Databases know by number and name which migrations they have had, and never run them again. A released migration that
 * changes, be it by a constant that is part of its text, makes new databases differ from old ones of the same number.
 */
import { createHash } from "node:crypto"
import { readFileSync, writeFileSync } from "node:fs"
import { expect, it } from "@effect/vitest"
import { migrations as postgres } from "../../src/Storage/Postgres/Schema.ts"
import { format as store } from "../../src/Storage/Sqlite/Kv/Schema.ts"
import { format as sessions } from "../../src/Storage/Sqlite/SessionEvents/Tables.ts"

const golden = new URL("../golden/migrations.json", import.meta.url)

/** The SHA-256 of the statements of each migration of a database, by its number and name. */
type Digests = Readonly<Record<string, string>>

const digestsOf = (
  migrations: ReadonlyArray<{ readonly name: string; readonly statements: ReadonlyArray<string> }>
): Digests =>
  Object.fromEntries(
    migrations.map(({ name, statements }, index) => [
      `${index + 1} ${name}`,
      createHash("sha256").update(JSON.stringify(statements)).digest("hex")
    ])
  )

it("a migration executes the same statements as when it was released", () => {
  const now = {
    PostgreSQL: digestsOf(postgres),
    "kv.db": digestsOf(store.migrations),
    "sessions.db": digestsOf(sessions.migrations)
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
