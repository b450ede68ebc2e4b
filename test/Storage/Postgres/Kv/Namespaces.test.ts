/** The numbers of tenants that a database of an earlier version gets. */
import { describe, expect, it } from "@effect/vitest"
import { Effect } from "effect"
import { migrations } from "../../../../src/Storage/Postgres/Schema.ts"
import { createDatabase, execute, optionsOf } from "../../../postgres/Databases.ts"
import { reasonToSkip } from "../../../postgres/Server.ts"
import { node } from "../Fixture.ts"

describe.skipIf(reasonToSkip !== undefined)(`Postgres, namespaces and tenants ${reasonToSkip ?? ""}`, () => {
  it.scopedLive("a store of an earlier version has the numbers of its tenants", () =>
    Effect.gen(function* () {
      const url = yield* Effect.promise(() => createDatabase())
      const run = (...statements: ReadonlyArray<string>) => Effect.promise(() => execute(url, ...statements))
      const step = migrations.findIndex(({ name }) => name === "tenants")
      yield* run("CREATE SCHEMA causeway", ...migrations.slice(0, step).flatMap(({ statements }) => statements))
      const names = ["n", "tenant:", "tenant:a", "tenant:a/x", "tenant:a/x", "tenant:a-b/x"]
      const insert = (from: number) =>
        run(
          ...names.map(
            (name, index) => `INSERT INTO causeway.entries (namespace, key, version, updated_at, updated_by, value)
              VALUES ('${name}', 'k${from + index}', 1, 1, 'a', '1')`
          )
        )
      yield* insert(0)
      yield* run(
        "BEGIN",
        ...migrations[step]!.statements,
        "COMMIT",
        "CREATE TABLE causeway.migrations (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz)",
        ...migrations.map(
          ({ name }, index) => `INSERT INTO causeway.migrations (version, name) VALUES (${index + 1}, '${name}')`
        )
      )
      yield* insert(10)
      const { store } = yield* node(optionsOf(url))
      expect((yield* store.tenants({ prefix: "", limit: 10, tenant: "" })).tenants).toEqual([
        { tenant: "", namespaces: 2, entries: 4 },
        { tenant: "a", namespaces: 2, entries: 6 },
        { tenant: "a-b", namespaces: 1, entries: 2 }
      ])
    })
  )
})
