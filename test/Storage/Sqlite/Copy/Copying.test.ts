/** Copies of databases that are written at the same time. */

import { hash } from "node:crypto"
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Worker } from "node:worker_threads"
import { assert, describe } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect, Fiber, Layer, Logger, Stream } from "effect"
import { Store } from "../../../../src/Kv/Store.ts"
import { store as storePart } from "../../../../src/Storage/Backup/Manifest.ts"
import { copy, Snapshot, takeAll } from "../../../../src/Storage/Sqlite/Copy/Copying.ts"
import * as CopyPort from "../../../../src/Storage/Sqlite/Copy/CopyPort.ts"
import { migrationsTable } from "../../../../src/Storage/Sqlite/Database/Connection.ts"
import * as Sqlite from "../../../../src/Storage/Sqlite.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"
import { test } from "../../../Tests.ts"
import { names, store } from "../../Backup/Fixture.ts"
import { epoch } from "../../SqliteFixture.ts"

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
  test.scopedLive("is of one moment, while both are written", function* () {
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

  test.scopedLive("fails when the write-ahead log grows too much, or the disk has no room", function* () {
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
})

describe("a backup of an open store", () => {
  for (const writer of ["thread", "inline"] as const) {
    test.scopedLive(`is one at a time, and is removed with its scope (${writer})`, function* () {
      const directory = yield* store(3)
      // A copy of a killed process, and a file of another program.
      for (const name of ["kv.backup-0123456789abcdef.tmp-journal", "kv.backup-mine.tmp"]) {
        writeFileSync(join(directory, name), "")
      }
      const copies = () => names(directory).filter(name => name.includes("backup"))
      const open = Layer.provide(Sqlite.layer({ directory, writer }), Logger.remove(Logger.defaultLogger))
      yield* Effect.gen(function* () {
        assert.deepStrictEqual(copies(), ["kv.backup-mine.tmp"])
        const { backup: turn } = yield* Store
        const backup = Effect.flatMap(turn, ({ copy }) => copy)
        const received = join(directory, "received.db")
        yield* Effect.scoped(
          Effect.gen(function* () {
            const made = yield* backup
            assert.deepInclude(made, { lastSeq: 3, epoch: yield* epoch })
            assert.lengthOf(copies(), 2)
            assert.strictEqual((yield* Effect.flip(Effect.scoped(backup)))._tag, "StoreBusy")
            const chunks = Array.from(yield* Stream.runCollect(made.content))
            writeFileSync(received, Buffer.concat(chunks))
            assert.strictEqual(hash("sha256", readFileSync(received), "hex"), made.sha256)
            assert.strictEqual(readFileSync(received).length, made.bytes)
          })
        )
        assert.deepStrictEqual(copies(), ["kv.backup-mine.tmp"])
        // A permission that is not used makes no copy.
        yield* Effect.scoped(
          Effect.zipRight(
            turn,
            Effect.sync(() => assert.lengthOf(copies(), 1))
          )
        )
        const interrupted = yield* Effect.fork(Effect.scoped(backup))
        yield* Effect.yieldNow()
        yield* Fiber.interrupt(interrupted)
        assert.deepStrictEqual(copies(), ["kv.backup-mine.tmp"])
        yield* Effect.scoped(backup)
        const verified = yield* CopyPort.verify({ ...storePart, file: received })
        assert.deepInclude(verified, { lastSeq: 3, count: 3 })
      }).pipe(Effect.provide(open))
    })
  }
})
