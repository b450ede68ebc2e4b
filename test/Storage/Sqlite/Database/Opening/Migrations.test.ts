import { readFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect } from "effect"
import {
  type Format,
  fileOf,
  type Migration,
  migrationsTable,
  openForWriting
} from "../../../../../src/Storage/Sqlite/Database/Connection.ts"
import { migrate } from "../../../../../src/Storage/Sqlite/Database/Opening/Migrations.ts"
import * as Opening from "../../../../../src/Storage/Sqlite/Database/Opening.ts"
import { format as storeFormat } from "../../../../../src/Storage/Sqlite/Kv/Schema.ts"
import { format as sessionFormat } from "../../../../../src/Storage/Sqlite/SessionEvents/Tables.ts"
import { temporaryDirectory } from "../../../../TemporaryDirectory.ts"
import { test } from "../../../../Tests.ts"

const step = (name: string, ...statements: ReadonlyArray<string>): Migration => ({ name, statements })

const first = step("notes", "CREATE TABLE notes (text TEXT)", "INSERT INTO notes VALUES ('1')")
const second = step("colors", "ALTER TABLE notes ADD COLUMN color TEXT", "UPDATE notes SET color = 'red'")
const broken = step("broken", "INSERT INTO notes (text) VALUES ('lost')", "INSERT INTO nowhere VALUES (1)")

const id = 0x54455354

const bring = (file: string, ...migrations: ReadonlyArray<Migration>) =>
  migrate(file, { applicationId: id, migrations })

/** Reads from a file on a separate connection. */
const look = <A>(file: string, body: (db: Database.Database) => A): A => {
  const db = new Database(file)
  try {
    return body(db)
  } finally {
    db.close()
  }
}

const stateOf = (file: string) =>
  look(file, db => ({
    id: db.pragma("application_id", { simple: true }),
    version: db.pragma("user_version", { simple: true }),
    listed: db.prepare(`SELECT migration_id, name FROM ${migrationsTable} ORDER BY 1`).raw().all(),
    notes: db.prepare("SELECT * FROM notes").raw().all()
  }))

const newest = {
  id,
  version: 2,
  listed: [
    [1, "notes"],
    [2, "colors"]
  ],
  notes: [["1", "red"]]
}

const newFile = Effect.map(temporaryDirectory, directory => join(directory, "file.db"))

describe("migrations of a database file", () => {
  test.scoped(
    "run if they are missing, also in a file with a write-ahead log, and are checkpointed into the file",
    function* () {
      for (const before of [[], [first]]) {
        const file = yield* newFile
        if (before.length > 0) yield* bring(file, ...before)
        look(file, db => db.pragma("journal_mode = WAL"))
        for (let times = 0; times < 2; times++) {
          yield* bring(file, first, second)
          // The version in the header was checkpointed from the log.
          expect(readFileSync(file).readUInt32BE(60)).toBe(2)
          expect(stateOf(file)).toEqual(newest)
        }
      }
    }
  )

  test.scoped("after a failed one the file is unchanged, and the next attempt runs all of them", function* () {
    const file = yield* newFile
    yield* bring(file, first)
    const before = stateOf(file)
    for (let attempt = 0; attempt < 2; attempt++) {
      const exit = yield* Effect.exit(bring(file, first, second, broken))
      expect(exit._tag).toBe("Failure")
      expect(stateOf(file)).toEqual(before)
    }
    yield* bring(file, first, second)
    expect(stateOf(file)).toEqual(newest)
  })
})

/** The formats of a version that has one more step. */
const formats = [storeFormat, sessionFormat].map(
  (format): Format => ({
    ...format,
    migrations: [...format.migrations, step("notes", "CREATE TABLE notes (text TEXT)")]
  })
)

/** A directory with a database that has had the first migrations of a format. */
const directoryAt = (format: Format, version: number) =>
  Effect.gen(function* () {
    const directory = yield* temporaryDirectory
    const file = fileOf(directory, format)
    yield* migrate(file, { ...format, migrations: format.migrations.slice(0, version) })
    return { directory, file }
  })

const refusalOf = (directory: string, format: Format) =>
  Effect.map(Effect.flip(Effect.scoped(Opening.open(directory, format))), ({ message }) => message)

describe("opening a database", () => {
  test.scoped("runs a second step, which the version before it refuses as newer", function* () {
    for (const [index, old] of [storeFormat, sessionFormat].entries()) {
      const format = formats[index]!
      const { directory, file } = yield* directoryAt(old, 1)
      yield* Effect.scoped(Opening.open(directory, old))
      yield* Effect.scoped(Opening.open(directory, format))
      expect(
        look(file, db => db.prepare(`SELECT name FROM ${migrationsTable} ORDER BY migration_id`).pluck().all())
      ).toEqual(["first_release", "notes"])
      expect(look(file, db => db.prepare("SELECT count(*) FROM notes").pluck().get())).toBe(0)
      expect(yield* refusalOf(directory, old)).toBe(
        `${file} has schema 2, newer than the 1 that this version works with`
      )
    }
  })

  test.scoped("with migrations of other names is refused and not changed", function* () {
    for (const format of formats) {
      const cases = [
        [
          "name = 'others' WHERE migration_id = 2",
          2,
          'its migration 2 is "others", and that of this version is "notes"'
        ],
        // One that would be migrated.
        ["name = 'others'", 1, 'its migration 1 is "others", and that of this version is "first_release"'],
        ["migration_id = 99", 1, 'its migration 1 is missing, and that of this version is "first_release"']
      ] as const
      for (const [change, version, message] of cases) {
        const { directory, file } = yield* directoryAt(format, version)
        look(file, db => db.exec(`UPDATE ${migrationsTable} SET ${change}`))
        const before = readFileSync(file)
        expect(yield* refusalOf(directory, format)).toBe(
          `${file} was written by a version with other migrations: ${message}`
        )
        expect(readFileSync(file).equals(before)).toBe(true)
        // One that was put into the place of an open one.
        expect(() => openForWriting(file, format)).toThrow(/was written by a version with other migrations/)
      }
      const { directory, file } = yield* directoryAt(format, 2)
      look(file, db => db.exec(`INSERT INTO ${migrationsTable} (migration_id, name) VALUES (99, 'future')`))
      expect(yield* refusalOf(directory, format)).toBe(
        `${file} was written by a version with other migrations: its migration 99 is "future", and its schema has the number 2`
      )
    }
  })

  test.scoped("of a development version is refused, not changed, and said what to do with", function* () {
    const names = ["initial", "launch_configurations", "metadata", "namespaces"]
    for (const format of [storeFormat, sessionFormat]) {
      for (const [version, hasList] of [
        [1, false],
        [1, true],
        [4, true]
      ] as const) {
        const { directory, file } = yield* directoryAt(
          { ...format, migrations: names.map(name => step(name)) },
          version
        )
        if (!hasList) look(file, db => db.exec(`DROP TABLE ${migrationsTable}`))
        const before = readFileSync(file)
        expect(yield* refusalOf(directory, format)).toBe(
          `${file} was written by a development version before the first release: export its entries with that ` +
            "version and import them into another directory, or start with an empty one"
        )
        expect(readFileSync(file).equals(before)).toBe(true)
      }
    }
  })
})
