/** The commands and the SQL of docs/operate/postgresql.md, against a server. */
import { join } from "node:path"
import { it } from "@effect/vitest"
import { Effect, Logger } from "effect"
import { expect } from "vitest"
import * as Sqlite from "../../src/Storage/Sqlite.ts"
import { createDatabase, execute } from "../postgres/Databases.ts"
import { reasonToSkip } from "../postgres/Server.ts"
import { put } from "../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { fencesOf, isRunnable } from "./Page.ts"
import { blocksOf, shell } from "./Shell.ts"

const page = "docs/operate/postgresql.md"

it.scopedLive.skipIf(reasonToSkip !== undefined)(`${page}: its commands and its SQL run ${reasonToSkip ?? ""}`, () =>
  Effect.gen(function* () {
    const directory = yield* temporaryDirectory
    yield* put("n", "k", 1).pipe(
      Effect.provide(Sqlite.layer({ directory: join(directory, "data"), writer: "inline" })),
      Effect.provide(Logger.remove(Logger.defaultLogger))
    )
    const url = new URL(yield* Effect.promise(() => createDatabase()))
    const admin = url.href
    yield* Effect.promise(() => execute(admin, "CREATE ROLE causeway LOGIN CREATEDB PASSWORD 'password'"))
    const { run } = yield* shell(directory, {
      env: { PGHOST: url.hostname, PGPORT: url.port, PGUSER: "causeway" },
      placed: { "db.example:5432": url.host, "?sslmode=verify-full": "" }
    })
    for (const block of blocksOf(page)) {
      // Not every installation of the server has the programs of its clients.
      if (block.code.startsWith("createdb") && !isRunnable("createdb", "--version")) {
        yield* Effect.promise(() =>
          execute(admin, "CREATE DATABASE causeway OWNER causeway TEMPLATE template0 ENCODING UTF8")
        )
      } else yield* run(block)
    }
    url.pathname = "/causeway"
    for (const { code, language } of fencesOf(page)) {
      if (language === "sql")
        yield* Effect.promise(() => execute(url.href, ...code.split(/;\s*$/m).filter(sql => sql.trim() !== "")))
    }
    const [settings] = yield* Effect.promise(() =>
      execute(url.href, "SELECT rolconfig FROM pg_roles WHERE rolname = 'causeway'")
    )
    expect(settings?.rolconfig).toHaveLength(7)
    yield* Effect.promise(() => execute(admin, "DROP DATABASE causeway", "DROP ROLE causeway"))
  })
)
