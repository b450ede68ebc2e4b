/** The numbers of namespaces and tenants, also of rows that the writer has not inserted. */

import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect, Layer } from "effect"
import { fileOf } from "../../../../src/Storage/Sqlite/Database/Connection.ts"
import { migrate } from "../../../../src/Storage/Sqlite/Database/Opening/Migrations.ts"
import { format, recount } from "../../../../src/Storage/Sqlite/Kv/Schema.ts"
import * as Sqlite from "../../../../src/Storage/Sqlite.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"
import * as Numbers from "../../Numbers.ts"

const start = 1_700_000_000_000

const using = <A>(file: string, body: (db: Database.Database) => A): A => {
  const db = new Database(file)
  try {
    return body(db)
  } finally {
    db.close()
  }
}

/** A directory with a store whose rows were inserted without the writer, and counted. */
const filled = Effect.gen(function* () {
  const directory = yield* temporaryDirectory
  const file = fileOf(directory, format)
  yield* migrate(file, format)
  using(file, db => {
    const entry = db.prepare("INSERT INTO entries VALUES (?, ?, 1, 'tester', ?, ?, '1')")
    const tombstone = db.prepare("INSERT INTO tombstones VALUES (?, ?, 2, ?)")
    const change = db.prepare("INSERT INTO changes VALUES (?, ?, ?, ?, ?, 'tester', ?, '', ?)")
    let seq = 0
    db.transaction(() => {
      for (const { expiresAt, key, namespace } of Numbers.entries) {
        entry.run(namespace, key, start, expiresAt)
        change.run(++seq, "set", namespace, key, 1, start, "1")
      }
      for (const { key, namespace } of Numbers.tombstones) {
        tombstone.run(namespace, key, ++seq)
        change.run(seq, "delete", namespace, key, 2, start, null)
      }
      db.exec(recount)
    })()
  })
  return directory
})

const tablesOf = (directory: string): Numbers.Tables =>
  using(join(directory, "kv.db"), db => ({
    entries: db.prepare<[], { readonly namespace: string }>("SELECT namespace FROM entries").all(),
    namespaces: db.prepare<[], [string, number]>("SELECT namespace, entries FROM namespaces").raw().all(),
    tenants: db.prepare<[], [string, number, number]>("SELECT tenant, namespaces, entries FROM tenants").raw().all()
  }))

describe("the numbers of namespaces and tenants", () => {
  it.scopedLive("are those of all entries, however these are named, and stay so with writes", () =>
    Effect.gen(function* () {
      const directory = yield* filled
      const counted = tablesOf(directory)
      expect(counted.entries).toHaveLength(Numbers.entries.length)
      Numbers.expectCounted(counted)
      yield* Effect.zipRight(Numbers.expectShown, Numbers.change).pipe(
        Effect.provide(Layer.fresh(Sqlite.layer({ directory, writer: "inline" })))
      )
      Numbers.expectCounted(tablesOf(directory))
    })
  )
})
