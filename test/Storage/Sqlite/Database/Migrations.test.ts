import { readFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect, Either } from "effect"
import { SessionEvents } from "../../../../src/Gateway/SessionEvents.ts"
import { migrationsTable } from "../../../../src/Storage/Sqlite/Database/AppliedMigrations.ts"
import { fileOf, openForWriting } from "../../../../src/Storage/Sqlite/Database/Connection.ts"
import { fromStatements, type Migration, migrate } from "../../../../src/Storage/Sqlite/Database/Migrations.ts"
import * as Opening from "../../../../src/Storage/Sqlite/Database/Opening.ts"
import { format as storeFormat } from "../../../../src/Storage/Sqlite/Kv/Writer.ts"
import { format as sessionFormat } from "../../../../src/Storage/Sqlite/SessionEvents/Writer.ts"
import * as Sqlite from "../../../../src/Storage/Sqlite/SessionEvents.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"

const first = fromStatements("initial", "CREATE TABLE notes (text TEXT)", "INSERT INTO notes VALUES ('1')")
const second = fromStatements("colors", "ALTER TABLE notes ADD COLUMN color TEXT", "UPDATE notes SET color = 'red'")
const broken = fromStatements("broken", "INSERT INTO notes (text) VALUES ('lost')", "INSERT INTO nowhere VALUES (1)")

const id = 0x54455354

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
    [1, "initial"],
    [2, "colors"]
  ],
  notes: [["1", "red"]]
}

const newFile = Effect.map(temporaryDirectory, directory => join(directory, "file.db"))

describe("migrations of a database file", () => {
  it.scoped("a preparation runs between transactions, not for a new file, and again after an interruption", () =>
    Effect.gen(function* () {
      const seen: Array<unknown> = []
      let isFailing = true
      const file = yield* newFile
      const prepared: Migration = {
        ...fromStatements("shapes", "ALTER TABLE notes ADD COLUMN shape TEXT"),
        prepare: Effect.suspend(() => {
          seen.push(look(file, db => [db.pragma("user_version", { simple: true }), db.inTransaction]))
          return isFailing ? Effect.fail("interrupted") : Effect.void
        })
      }
      const all = [first, second, prepared]
      yield* migrate(file, id, [first])
      expect(Either.isLeft(yield* Effect.either(migrate(file, id, all)))).toBe(true)
      expect(stateOf(file)).toEqual(newest)
      isFailing = false
      yield* migrate(file, id, all)
      yield* migrate(file, id, all)
      expect(seen).toEqual([
        [2, false],
        [2, false]
      ])
      expect(stateOf(file)).toMatchObject({ version: 3, notes: [["1", "red", null]] })
      yield* migrate(yield* newFile, id, all)
      expect(seen).toHaveLength(2)
    })
  )

  it.scoped("all run for a new file, and none runs again", () =>
    Effect.gen(function* () {
      const file = yield* newFile
      yield* migrate(file, id, [first, second])
      expect(stateOf(file)).toEqual(newest)
      yield* migrate(file, id, [first, second])
      expect(stateOf(file)).toEqual(newest)
    })
  )

  it.scoped("missing ones run, also in a file with a write-ahead log, and are checkpointed into the file", () =>
    Effect.gen(function* () {
      const file = yield* newFile
      yield* migrate(file, id, [first])
      look(file, db => db.pragma("journal_mode = WAL"))
      yield* migrate(file, id, [first, second])
      // The version in the header was checkpointed from the log.
      expect(readFileSync(file).readUInt32BE(60)).toBe(2)
      expect(stateOf(file)).toEqual(newest)
    })
  )

  it.scoped("a file with a version and no list of migrations gets the later ones", () =>
    Effect.gen(function* () {
      const file = yield* newFile
      look(file, db => {
        db.exec("CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('1')")
        db.pragma(`application_id = ${id}`)
        db.pragma("user_version = 1")
      })
      yield* migrate(file, id, [first, second])
      expect(stateOf(file)).toEqual(newest)
    })
  )

  it.scoped("after a failed one the file is unchanged, and the next attempt runs all of them", () =>
    Effect.gen(function* () {
      const file = yield* newFile
      yield* migrate(file, id, [first])
      const before = stateOf(file)
      for (let attempt = 0; attempt < 2; attempt++) {
        const exit = yield* Effect.exit(migrate(file, id, [first, second, broken]))
        expect(exit._tag).toBe("Failure")
        expect(stateOf(file)).toEqual(before)
      }
      yield* migrate(file, id, [first, second])
      expect(stateOf(file)).toEqual(newest)
    })
  )

  for (const [name, format] of [
    ["the store", storeFormat],
    ["session histories", sessionFormat]
  ] as const) {
    it.effect(`the schema of ${name} has the number and the names of its migrations`, () =>
      Effect.gen(function* () {
        const { migrations } = yield* Effect.promise<{ readonly migrations: ReadonlyArray<Migration> }>(format.load)
        expect(migrations).toHaveLength(format.schemaVersion)
        expect(migrations.map(({ name }) => name)).toEqual(format.migrationNames)
      })
    )
  }
})

describe("opening a database", () => {
  it.scoped("with migrations of other names is refused and not changed", () =>
    Effect.gen(function* () {
      for (const format of [storeFormat, sessionFormat]) {
        const { migrations } = yield* Effect.promise<{ readonly migrations: ReadonlyArray<Migration> }>(format.load)
        const names = format.migrationNames
        const cases = [
          ["name = 'others'", names.length, `its migration 2 is "others", and that of this version is "${names[1]}"`],
          // One that would be migrated.
          ["name = 'others'", 2, `its migration 2 is "others", and that of this version is "${names[1]}"`],
          ["migration_id = 99", 2, `its migration 2 is missing, and that of this version is "${names[1]}"`]
        ] as const
        for (const [change, version, message] of cases) {
          const directory = yield* temporaryDirectory
          const file = fileOf(directory, format)
          yield* migrate(file, format.applicationId, migrations.slice(0, version))
          look(file, db => db.exec(`UPDATE ${migrationsTable} SET ${change} WHERE migration_id = 2`))
          const before = readFileSync(file)
          const refused = yield* Effect.flip(Effect.scoped(Opening.open(directory, format)))
          expect(refused.message).toBe(`${file} was written by a version with other migrations: ${message}`)
          expect(readFileSync(file).equals(before)).toBe(true)
        }
        const directory = yield* temporaryDirectory
        const file = fileOf(directory, format)
        yield* migrate(file, format.applicationId, migrations)
        // One more than the number of its schema.
        look(file, db => db.exec(`INSERT INTO ${migrationsTable} (migration_id, name) VALUES (99, 'future')`))
        const refused = yield* Effect.flip(Effect.scoped(Opening.open(directory, format)))
        expect(refused.message).toBe(
          `${file} was written by a version with other migrations: its migration 99 is "future", and its schema has the ` +
            `number ${names.length}`
        )
        look(file, db => db.exec(`DELETE FROM ${migrationsTable} WHERE migration_id = 99`))
        look(file, db => db.exec(`UPDATE ${migrationsTable} SET name = 'others' WHERE migration_id = 1`))
        // One that was put into the place of an open one.
        expect(() => openForWriting(file, format)).toThrow(
          /was written by a version with other migrations: its migration 1/
        )
      }
    })
  )
})

describe("opening session histories", () => {
  const refusal = (directory: string) =>
    Effect.map(Effect.either(Effect.scoped(Sqlite.make({ directory, writer: "inline" }))), outcome =>
      Either.isLeft(outcome) ? outcome.left.message : undefined
    )

  it.scoped("a file from before the first migration keeps its content", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const { migrations } = yield* Effect.promise(sessionFormat.load)
      const file = fileOf(directory, sessionFormat)
      yield* migrate(file, sessionFormat.applicationId, migrations.slice(0, 1))
      look(file, db => {
        db.exec(`DROP TABLE ${migrationsTable}`)
        db.exec("INSERT INTO histories (session, epoch, head, trimmed, bytes) VALUES ('t/s', 'e', 0, 0, 0)")
      })
      const { epoch } = yield* Effect.flatMap(SessionEvents, events => events.open("t/s", "another")).pipe(
        Effect.provide(Sqlite.layer({ directory, writer: "inline" }))
      )
      expect(epoch).toBe("e")
    })
  )

  it.scoped("a newer schema is refused, also if it is only in the write-ahead log", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      expect(yield* refusal(directory)).toBeUndefined()
      const file = fileOf(directory, sessionFormat)
      const newer = new Database(file)
      newer.pragma("journal_mode = WAL")
      newer.pragma("user_version = 1000")
      expect(readFileSync(file).readUInt32BE(60)).not.toBe(1000)
      expect(yield* refusal(directory)).toMatch(/sessions\.db has schema 1000, newer than/)
      newer.close()
      expect(yield* refusal(directory)).toMatch(/sessions\.db has schema 1000, newer than/)
    })
  )
})
