/** Copies of databases that are written at the same time. */
import { existsSync, rmSync } from "node:fs"
import { join } from "node:path"
import { Worker } from "node:worker_threads"
import { assert, describe, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect } from "effect"
import { copy, Snapshot, takeAll } from "../../../../src/Storage/Sqlite/Copy/Copying.ts"
import * as CopyPort from "../../../../src/Storage/Sqlite/Copy/CopyPort.ts"
import { migrationsTable } from "../../../../src/Storage/Sqlite/Database/Connection.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"

const format = { name: "t", applicationId: 7, migrations: [{ name: "first", statements: [] }] }

/** A database with one table and one row. */
const makeDatabase = (file: string, bytes = 2_000_000): Database.Database => {
  const db = new Database(file)
  db.pragma("journal_mode = WAL")
  db.pragma("application_id = 7")
  db.pragma("user_version = 1")
  db.exec(`CREATE TABLE ${migrationsTable} (migration_id, name); INSERT INTO ${migrationsTable} VALUES (1, 'first')`)
  db.exec(`CREATE TABLE t (n INTEGER, filler BLOB); INSERT INTO t VALUES (0, zeroblob(${bytes}))`)
  return db
}

/**
 * Writes n into the first database and then into the second one until it is terminated, with pauses of 15 ms. It sends a
 * message when it has started.
 */
const writer = (first: string, second: string) =>
  new Worker(
    `const Database = require("better-sqlite3")
     const { parentPort, workerData } = require("node:worker_threads")
     const [a, b] = workerData.map(file => new Database(file))
     for (const db of [a, b]) db.pragma("synchronous = OFF")
     const statements = [a, b].map(db => db.prepare("UPDATE t SET n = ?"))
     const never = new Int32Array(new SharedArrayBuffer(4))
     for (let n = 1; ; n++) {
       for (const s of statements) s.run(n)
       if (n === 10) parentPort.postMessage("begun")
       if (n % 200 === 0) Atomics.wait(never, 0, 0, 15)
     }`,
    { eval: true, workerData: [first, second] }
  )

const numberIn = (db: Database.Database): number => db.prepare<[], number>("SELECT n FROM t").pluck().get()!

describe("a copy of databases", () => {
  it.scopedLive("is of one moment, while both are written", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const [first, second, other] = ["a.db", "b.db", "c.db"].map(name => join(directory, name)) as [
        string,
        string,
        string
      ]
      for (const file of [first, second, other]) makeDatabase(file).close()
      yield* Effect.acquireRelease(
        Effect.async<Worker>(resume => {
          const thread = writer(first, second)
          thread.once("message", () => resume(Effect.succeed(thread)))
        }),
        thread => Effect.promise(() => thread.terminate())
      )
      const source = (file: string, target = "") => ({ format, file, target })
      const seen = new Set<number>()
      for (let round = 0; round < 20; round++) {
        // Time passes between the first and the last.
        const files = [first, ...Array.from({ length: 100 }, () => other), second]
        const snapshots = files.map(file => new Snapshot(source(file)))
        takeAll(snapshots)
        const [a, b] = [snapshots[0]!, snapshots.at(-1)!].map(({ db }) => numberIn(db)) as [number, number]
        for (const snapshot of snapshots) snapshot.close()
        assert.include([a, a - 1], b, `the first has ${a}, the second ${b}`)
        seen.add(a)
      }
      assert.isAbove(seen.size, 1)
      const sources = [first, second].map(file => source(file, `${file}.copy`))
      yield* Effect.promise(() => copy({ sources, maxLogBytes: 1024 ** 3, bytesLeft: 0 }, () => {}))
      const [a, b] = sources.map(({ target }) => numberIn(new Database(target, { readonly: true }))) as [number, number]
      assert.include([a, a - 1], b)
    })
  )

  it.scopedLive("fails when the write-ahead log grows too much, or the disk has no room", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const [file, target] = [join(directory, "a.db"), join(directory, "copy")]
      const db = makeDatabase(file)
      db.exec("INSERT INTO t SELECT n, zeroblob(20000000) FROM t")
      db.pragma("wal_checkpoint(TRUNCATE)")
      const request = { sources: [{ format, file, target }], maxLogBytes: 1_000_000, bytesLeft: 0 }
      const grow = () => void db.exec("UPDATE t SET filler = randomblob(3000000) WHERE length(filler) < 5000000")
      const tooLarge = yield* Effect.promise(() => copy(request, grow).then(String, error => error))
      assert.strictEqual(tooLarge.reason, "LogTooLarge")
      assert.match(tooLarge.message, /a\.db has grown by \d+ MiB while it was copied; the limit is 1 MiB$/)
      rmSync(target)
      // What the log had before does not count.
      yield* Effect.promise(() => copy(request, () => {}))
      rmSync(target)
      const noRoom = yield* Effect.flip(CopyPort.copy({ ...request, bytesLeft: 2 ** 60 }))
      assert.strictEqual(noRoom.reason, "NoRoom")
      assert.match(noRoom.message, /^The disk of .* has [\d,]+ MiB left, and the copy needs [\d,]+ MiB$/)
      assert.isFalse(existsSync(target))
      db.close()
    })
  )
})
