/** Opening a database: files that are created, and files that are refused. */
import { createHash } from "node:crypto"
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
  writeSync
} from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Context, Effect, Either, Layer, Option } from "effect"
import * as TestClock from "effect/TestClock"
import { Store } from "../../../../src/Kv/Store.ts"
import { openExclusive, openForReading, openForWriting } from "../../../../src/Storage/Sqlite/Database/Connection.ts"
import { describe as describeError, isDefect } from "../../../../src/Storage/Sqlite/Database/DatabaseError.ts"
import { format } from "../../../../src/Storage/Sqlite/Kv/Schema.ts"
import * as Sqlite from "../../../../src/Storage/Sqlite.ts"
import * as Owner from "../../../faults/Owner.ts"
import { get, lastSeq, put, remove } from "../../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"
import { test } from "../../../Tests.ts"
import { during, refusal, using } from "../../SqliteFixture.ts"

const { applicationId } = format
const schemaVersion = format.migrations.length

/** All of a directory but an empty lock, by its content. */
const contents = (directory: string) =>
  readdirSync(directory).flatMap(name => {
    const path = join(directory, name)
    const stat = statSync(path)
    if (name === "kv.lock" && stat.size === 0) return []
    return [[name, stat.mtimeMs, stat.isFile() && createHash("sha256").update(readFileSync(path)).digest("hex")]]
  })

const expectRefused = (directory: string, reason: RegExp, name = "kv.db") =>
  Effect.gen(function* () {
    const before = contents(directory)
    const error = yield* refusal(directory)
    expect(error).toMatchObject({ _tag: "StoreRefused", file: join(directory, name) })
    expect(error?.message).toContain(join(directory, name))
    expect(error?.message).toMatch(reason)
    expect(contents(directory)).toEqual(before)
  })

/** Changes 4 bytes of a file in place. */
const poke = (file: string, offset: number, value: number) => {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  const descriptor = openSync(file, "r+")
  writeSync(descriptor, bytes, 0, 4, offset)
  closeSync(descriptor)
}

describe("opening", () => {
  test.scoped("a missing directory is created, and writes survive a restart", function* () {
    const directory = join(yield* temporaryDirectory, "deep", "down")
    yield* using(directory, Effect.zipRight(put("n", "a", { x: 1 }), put("n", "b", 2)))
    expect(readdirSync(directory).sort()).toEqual(["kv.db", "kv.epoch", "kv.lock"])
    yield* during(directory, function* () {
      expect(Option.getOrThrow(yield* get("n", "a"))).toMatchObject({ value: '{"x":1}', version: 1 })
      yield* remove("n", "b")
    })
    const committed = yield* using(directory, put("n", "b", 3))
    expect(committed).toMatchObject({ lastSeq: 4, results: [{ entry: { version: 3 } }] })
  })

  test.scoped("a read after the end fails, and reopens nothing", function* () {
    const directory = yield* temporaryDirectory
    const store = yield* Effect.scoped(
      Effect.map(Layer.build(Sqlite.layer({ directory, writer: "inline" })), Context.get(Store))
    )
    expect(Either.isLeft(yield* Effect.either(store.get("n", "a")))).toBe(true)
    expect(existsSync(join(directory, "kv.db-wal"))).toBe(false)
  })

  test.scoped("commits are flushed, also after a write-ahead log is reopened", function* () {
    const directory = yield* temporaryDirectory
    const file = join(directory, "kv.db")
    yield* using(directory, lastSeq)
    for (let round = 0; round < 2; round++) {
      const db = openForWriting(file, format)
      expect(db.pragma("synchronous", { simple: true })).toBe(2)
      expect(db.pragma("journal_mode", { simple: true })).toBe("wal")
      db.close()
    }
  })

  test.scoped("an empty file counts as a missing one, and files of an interrupted creation are replaced", function* () {
    const directory = yield* temporaryDirectory
    writeFileSync(join(directory, "kv.db"), "")
    for (const end of ["", "-journal", "-wal"]) writeFileSync(join(directory, `kv.db.new${end}`), "half")
    expect((yield* using(directory, put("n", "a", 1))).lastSeq).toBe(1)
    expect(readdirSync(directory).sort()).toEqual(["kv.db", "kv.epoch", "kv.lock"])
  })

  test.scoped("a clock that was set back does not set the log back", function* () {
    const directory = yield* temporaryDirectory
    yield* TestClock.setTime(2000)
    yield* using(directory, put("n", "a", 1))
    yield* TestClock.setTime(1000)
    const { timestamp } = yield* using(directory, put("n", "a", 2))
    expect(timestamp).toBe(2000)
    yield* TestClock.setTime(3000)
    expect((yield* using(directory, put("n", "a", 3))).timestamp).toBe(3000)
  })
})

/** Makes a database with another program. */
const makeDatabase = (file: string, sql: string) => {
  const db = new Database(file)
  db.exec(sql)
  db.close()
}

describe("refusing", () => {
  const noDatabase = /is not a SQLite database/
  const cases: Readonly<Record<string, readonly [make: (file: string) => void, reason: RegExp, name?: string]>> = {
    "a short file": [file => writeFileSync(file, "x"), noDatabase],
    "the beginning of a header": [file => writeFileSync(file, "SQLite format 3\u0000"), noDatabase],
    "a file that is no database": [file => writeFileSync(file, "not a database\n".repeat(1000)), noDatabase],
    "a directory in the file's place": [file => mkdirSync(file), noDatabase],
    "another application's database": [
      file => makeDatabase(file, "CREATE TABLE notes (text); INSERT INTO notes VALUES ('mine')"),
      /is the database of another application/
    ],
    "a write-ahead log without its database": [
      file => writeFileSync(`${file}-wal`, "frames"),
      /kv\.db is missing or empty, while .*kv\.db-wal has data/
    ],
    "a database whose tables are not ours": [
      file =>
        makeDatabase(
          file,
          `PRAGMA application_id = ${applicationId}; PRAGMA user_version = ${schemaVersion};
           CREATE TABLE effect_sql_migrations (migration_id, name);
           INSERT INTO effect_sql_migrations VALUES (1, '${format.migrations[0]!.name}')`
        ),
      /kv\.db cannot be opened .*no such table/
    ],
    "a lock that is not one": [
      file => writeFileSync(file.replace(/db$/, "lock"), "not a database\n".repeat(1000)),
      /kv\.lock is not the lock of a store/,
      "kv.lock"
    ]
  }

  it.scoped.each(Object.keys(cases))("%s, which stays as it is", title =>
    Effect.gen(function* () {
      const [make, reason, name = "kv.db"] = cases[title]!
      const directory = yield* temporaryDirectory
      make(join(directory, "kv.db"))
      yield* expectRefused(directory, reason, name)
    })
  )

  test.scoped("a newer schema, by the header", function* () {
    const directory = yield* temporaryDirectory
    yield* using(directory, put("n", "a", 1))
    poke(join(directory, "kv.db"), 60, schemaVersion + 1)
    yield* expectRefused(directory, new RegExp(`has schema ${schemaVersion + 1}, newer than the ${schemaVersion} `))
  })

  test.scoped("a newer schema that is only in the write-ahead log", function* () {
    const directory = yield* temporaryDirectory
    yield* using(directory, put("n", "a", 1))
    const file = join(directory, "kv.db")
    // A copy taken while another connection has the log open is equal to the files of a killed process.
    const newer = new Database(file)
    newer.pragma("journal_mode = WAL")
    const later = schemaVersion + 1
    newer.exec(
      `INSERT INTO effect_sql_migrations (migration_id, name) VALUES (${later}, 'later'); PRAGMA user_version = ${later}`
    )
    const copy = yield* temporaryDirectory
    for (const name of ["kv.db", "kv.db-wal"]) writeFileSync(join(copy, name), readFileSync(join(directory, name)))
    newer.close()
    const before = readFileSync(join(copy, "kv.db"))
    expect((yield* refusal(copy))?.message).toMatch(new RegExp(`has schema ${later}, newer than the ${schemaVersion} `))
    expect(readFileSync(join(copy, "kv.db")).equals(before)).toBe(true)
  })

  test.scoped("a directory that cannot be accessed when a connection is opened", function* () {
    const file = join(yield* temporaryDirectory, "gone", "kv.db")
    for (const open of [() => openForWriting(file, format), () => openForReading(file), () => openExclusive(file)]) {
      const error = yield* Effect.flip(Effect.try({ try: open, catch: error => error }))
      expect({ isDefect: isDefect(error), reason: describeError(error) }).toEqual({
        isDefect: false,
        reason: "Cannot open database because the directory does not exist"
      })
    }
  })

  test.scoped("a directory that cannot be one, or that the system does not allow", function* () {
    const file = join(yield* temporaryDirectory, "file")
    writeFileSync(file, "in the way")
    const ofSystem = process.platform === "linux" ? ["/proc/nothing", "/proc/nothing/below"] : []
    for (const directory of [file, join(file, "below"), ...ofSystem]) {
      const error = yield* refusal(directory)
      expect(error).toMatchObject({ _tag: "StoreRefused", file: directory })
      expect(error?.message).toMatch(/cannot be used as the directory of a store/)
    }
    expect(readFileSync(file, "utf8")).toBe("in the way")
  })
})

describe("created files", () => {
  test.scopedLive("are private to their owner, and existing ones keep their mode", function* () {
    const modeOf = (path: string) => statSync(path).mode & 0o777
    const parent = yield* temporaryDirectory
    const directory = join(parent, "deep", "down")
    const before = modeOf(parent)
    const owner = yield* Owner.start(directory)
    yield* owner.ask({ do: "set", key: "a", value: "kept" })
    expect(readdirSync(directory).sort()).toEqual(["kv.db", "kv.db-shm", "kv.db-wal", "kv.epoch", "kv.lock"])
    for (const name of readdirSync(directory)) expect([name, modeOf(join(directory, name))]).toEqual([name, 0o600])
    expect([modeOf(parent), modeOf(join(parent, "deep")), modeOf(directory)]).toEqual([before, 0o700, 0o700])
    yield* owner.end
    chmodSync(directory, 0o755)
    for (const name of ["kv.db", "kv.epoch", "kv.lock"]) chmodSync(join(directory, name), 0o640)
    const again = yield* Owner.start(directory)
    yield* again.ask({ do: "set", key: "a", value: "kept" })
    expect(modeOf(directory)).toBe(0o755)
    for (const name of readdirSync(directory)) expect([name, modeOf(join(directory, name))]).toEqual([name, 0o640])
    yield* again.end
  })
})
