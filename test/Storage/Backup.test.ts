/** Backups and restores of data directories within this process; copies are made in threads, as in the commands. */
import { hash } from "node:crypto"
import {
  appendFileSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  writeFileSync,
  writeSync
} from "node:fs"
import { join } from "node:path"
import { Worker } from "node:worker_threads"
import { assert, describe, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Deferred, Effect, Exit, Fiber, Layer, Logger, Stream } from "effect"
import { ChangeLog } from "../../src/Kv/ChangeLog.ts"
import { Store } from "../../src/Kv/Store.ts"
import { histories, parse, store as storePart, verificationOf } from "../../src/Storage/Backup/Manifest.ts"
import * as Restore from "../../src/Storage/Backup/Restore.ts"
import type * as Backup from "../../src/Storage/Backup.ts"
import { copy, Snapshot, takeAll } from "../../src/Storage/Sqlite/Copy/Copying.ts"
import * as CopyPort from "../../src/Storage/Sqlite/Copy/CopyPort.ts"
import * as Opening from "../../src/Storage/Sqlite/Database/Opening.ts"
import * as Restored from "../../src/Storage/Sqlite/Database/Restored.ts"
import * as Sqlite from "../../src/Storage/Sqlite.ts"
import { get, lastSeq, put } from "../suites/Store/Fixture.ts"
import { backUp, failure, inStore, names, store } from "./Backup/Fixture.ts"
import { temporaryDirectory } from "./SqliteFixture.ts"

const epoch = Effect.flatMap(ChangeLog, log =>
  Effect.map(log.read({ after: 0, limit: 1, tenant: "" }), page => page.epoch)
)

const kind = { applicationId: 7, schemaVersion: 1, lastSeq: undefined }

/** A database with one table and one row. */
const makeDatabase = (file: string, bytes = 2_000_000): Database.Database => {
  const db = new Database(file)
  db.pragma("journal_mode = WAL")
  db.pragma("application_id = 7")
  db.pragma("user_version = 1")
  db.exec(`CREATE TABLE t (n INTEGER, filler BLOB); INSERT INTO t VALUES (0, zeroblob(${bytes}))`)
  return db
}

/**
 * What writes n into the first database and then into the second one, for ever, with pauses of 15 ms; it tells when it has
 * begun.
 */
const writer = (first: string, second: string) =>
  new Worker(
    `const Database = require("better-sqlite3")
     const { parentPort, workerData } = require("node:worker_threads")
     const [a, b] = workerData.map(file => new Database(file))
     for (const db of [a, b]) db.pragma("synchronous = OFF")
     const statements = [a, b].map(db => db.prepare("UPDATE t SET n = ?"))
     const nobody = new Int32Array(new SharedArrayBuffer(4))
     for (let n = 1; ; n++) {
       for (const s of statements) s.run(n)
       if (n === 10) parentPort.postMessage("begun")
       if (n % 200 === 0) Atomics.wait(nobody, 0, 0, 15)
     }`,
    { eval: true, workerData: [first, second] }
  )

const numberIn = (db: Database.Database): number => db.prepare<[], number>("SELECT n FROM t").pluck().get()!

/** Makes the database of histories, and one history where it is named. */
const makeSessions = (directory: string, session?: string) =>
  Effect.map(Effect.scoped(Opening.open(directory, histories.format)), ({ file }) => {
    const db = new Database(file)
    if (session !== undefined) {
      db.prepare("INSERT INTO histories (session, epoch, head, trimmed, bytes) VALUES (?, 'old', 3, 0, 0)").run(session)
    }
    db.close()
    return file
  })

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
      const source = (file: string, target = "") => ({ kind, file, target })
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
      yield* Effect.promise(() => copy({ sources, mostLogBytes: 1024 ** 3, bytesLeft: 0 }, () => {}))
      const [a, b] = sources.map(({ target }) => numberIn(new Database(target, { readonly: true }))) as [number, number]
      assert.include([a, a - 1], b)
    })
  )

  it.scopedLive("is given up when the write-ahead log grows too much meanwhile, or the disk has no room", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const [file, target] = [join(directory, "a.db"), join(directory, "copy")]
      const db = makeDatabase(file)
      db.exec("INSERT INTO t SELECT n, zeroblob(20000000) FROM t")
      db.pragma("wal_checkpoint(TRUNCATE)")
      const request = { sources: [{ kind, file, target }], mostLogBytes: 1_000_000, bytesLeft: 0 }
      const grow = () => void db.exec("UPDATE t SET filler = randomblob(3000000) WHERE length(filler) < 5000000")
      const tooLarge = yield* Effect.promise(() => copy(request, grow).then(String, error => error))
      assert.strictEqual(tooLarge.reason, "LogTooLarge")
      assert.match(tooLarge.message, /a\.db has grown by \d+ MiB while it was copied; the limit is 1 MiB$/)
      rmSync(target)
      const noRoom = yield* Effect.flip(CopyPort.copy({ ...request, bytesLeft: 2 ** 60 }))
      assert.strictEqual(noRoom.reason, "NoRoom")
      assert.match(noRoom.message, /^The disk of .* has [\d,]+ MiB left, and the copy needs [\d,]+ MiB$/)
      assert.isFalse(existsSync(target))
      db.close()
    })
  )
})

describe("a backup of an open store", () => {
  for (const writer of ["thread", "inline"] as const) {
    it.scopedLive(`is one at a time, and is removed with its scope (${writer})`, () =>
      Effect.gen(function* () {
        const directory = yield* store(3)
        // One that a process has left, and a file of somebody else.
        for (const name of ["kv.backup-0123456789abcdef.tmp-journal", "kv.backup-mine.tmp"]) {
          writeFileSync(join(directory, name), "")
        }
        const copies = () => names(directory).filter(name => name.includes("backup"))
        const open = Layer.provide(Sqlite.layer({ directory, writer }), Logger.remove(Logger.defaultLogger))
        yield* Effect.gen(function* () {
          assert.deepStrictEqual(copies(), ["kv.backup-mine.tmp"])
          const { backup } = yield* Store
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
          const interrupted = yield* Effect.fork(Effect.scoped(backup))
          yield* Effect.yieldNow()
          yield* Fiber.interrupt(interrupted)
          assert.deepStrictEqual(copies(), ["kv.backup-mine.tmp"])
          yield* Effect.scoped(backup)
          const verified = yield* CopyPort.verify(verificationOf(storePart, received))
          assert.deepInclude(verified, { lastSeq: 3, count: 3 })
        }).pipe(Effect.provide(open))
      })
    )
  }
})

describe("a backup", () => {
  it.scopedLive(
    "has both databases and tells what they are; it appears when it is whole, and is not replaced unasked",
    () =>
      Effect.gen(function* () {
        const directory = yield* store(20)
        const place = yield* temporaryDirectory
        const target = join(place, "backup")
        const seen: Array<string> = []
        const made = yield* inStore(directory)(
          Effect.gen(function* () {
            yield* put("n", "open", 1)
            const made = yield* backUp(directory, target, {
              report: ({ phase }) => seen.push(`${phase} ${existsSync(target)}`)
            })
            assert.deepInclude(made, { entries: 21, lastSeq: 21, epoch: yield* epoch, sessions: null })
            return made
          })
        )
        assert.deepStrictEqual([...new Set(seen)], ["copy false", "verify false"])
        // There were no sessions.
        assert.deepStrictEqual(names(target), ["backup.json", "kv.db"])
        const manifest = parse(readFileSync(join(target, "backup.json"), "utf8"))
        assert.deepInclude(manifest, { _tag: "Some" })
        assert.match(yield* failure(backUp(directory, target)), /backup is there already$/)
        assert.strictEqual((yield* backUp(directory, target, { force: true })).lastSeq, made.lastSeq)
        writeFileSync(join(target, "own"), "precious")
        assert.match(
          yield* failure(backUp(directory, target, { force: true })),
          /is there already, and is not a backup of this kind$/
        )
        assert.deepStrictEqual(names(place), ["backup"])
      })
  )

  it.scopedLive("leaves nothing when it is interrupted, or cannot be verified", () =>
    Effect.gen(function* () {
      const directory = yield* store(3)
      const place = yield* temporaryDirectory
      for (const phase of ["copy", "verify"] as const) {
        const reached = yield* Deferred.make<void>()
        const report: Backup.Report = progress => {
          if (progress.phase === phase) Deferred.unsafeDone(reached, Effect.void)
        }
        const fiber = yield* Effect.fork(backUp(directory, join(place, phase), { report }))
        yield* Deferred.await(reached)
        assert.isTrue(Exit.isInterrupted(yield* Fiber.interrupt(fiber)))
        assert.deepStrictEqual(names(place), [], phase)
      }
      const damaged = join(directory, "kv.db")
      const descriptor = openSync(damaged, "r+")
      writeSync(descriptor, Buffer.alloc(200, 7), 0, 200, 2 * 4096)
      assert.match(yield* failure(backUp(directory, join(place, "damaged"))), /is damaged/)
      assert.deepStrictEqual(names(place), [])
    })
  )
})

describe("a restore", () => {
  it.scopedLive("brings back what the backup has, with a new epoch, and moves aside what was there", () =>
    Effect.gen(function* () {
      const directory = yield* store(5)
      const backup = join(yield* temporaryDirectory, "backup")
      const { epoch: before } = yield* backUp(directory, backup)
      yield* inStore(directory)(put("n", "later", 1))
      assert.match(yield* failure(Restore.restore({ backup, directory, force: false })), /is not empty: it has kv\.db$/)
      const restored = yield* Restore.restore({ backup, directory, force: true })
      assert.deepInclude(restored, { entries: 5, lastSeq: 5, epochBefore: before, sessions: null })
      assert.notStrictEqual(restored.epoch, before)
      const check = Effect.gen(function* () {
        assert.strictEqual(yield* lastSeq, 5)
        assert.strictEqual(yield* epoch, restored.epoch)
        assert.strictEqual((yield* get("n", "later"))._tag, "None")
      })
      yield* inStore(directory)(check)
      // Nothing is deleted, and what was moved aside is a store.
      yield* inStore(restored.aside!)(Effect.map(lastSeq, seq => assert.strictEqual(seq, 6)))
    })
  )

  it.scopedLive("refuses what is half, damaged, newer or mixed, and what is in use; nothing is changed then", () =>
    Effect.gen(function* () {
      const directory = yield* store(3)
      const place = yield* temporaryDirectory
      yield* makeSessions(directory)
      const good = join(place, "good")
      yield* backUp(directory, good)
      const other = join(place, "other")
      yield* makeSessions(directory, "tenant/one")
      yield* backUp(directory, other)
      const changed = (name: string, change: (backup: string) => void): string => {
        const backup = join(place, name)
        mkdirSync(backup)
        for (const file of readdirSync(good)) copyFileSync(join(good, file), join(backup, file))
        change(backup)
        return backup
      }
      const file = (name: string, change: (file: string) => void): string => {
        const path = join(place, name)
        copyFileSync(join(good, "kv.db"), path)
        change(path)
        return path
      }
      const cases: ReadonlyArray<readonly [backup: string, message: RegExp]> = [
        [join(place, "nowhere"), /nowhere does not exist$/],
        [changed("nothing", backup => rmSync(join(backup, "backup.json"))), /is not a backup: it has no backup\.json$/],
        [changed("garbled", backup => appendFileSync(join(backup, "backup.json"), "}")), /is damaged, or of a newer/],
        [changed("missing", backup => rmSync(join(backup, "sessions.db"))), /sessions\.db is missing/],
        [
          changed("short", backup => truncateSync(join(backup, "kv.db"), 4096)),
          /has 4096 bytes, and backup\.json says/
        ],
        [
          changed("bits", backup => writeSync(openSync(join(backup, "kv.db"), "r+"), "x", 5000)),
          /kv\.db is damaged, or not of this backup/
        ],
        [
          changed("mixed", backup => copyFileSync(join(other, "sessions.db"), join(backup, "sessions.db"))),
          /sessions\.db is damaged, or not of this backup/
        ],
        [file("half.db", path => truncateSync(path, 3 * 4096)), /kv\.db is damaged/],
        [
          file("damaged.db", path => writeSync(openSync(path, "r+"), Buffer.alloc(200, 7), 0, 200, 2 * 4096)),
          /is damaged/
        ],
        [file("text.db", path => writeFileSync(path, "no database")), /is damaged: file is not a database$/],
        [file("sessions.db", path => copyFileSync(join(good, "sessions.db"), path)), /database of another application/],
        [
          file("newer.db", path => {
            const db = new Database(path)
            db.pragma("user_version = 99")
            db.close()
          }),
          /has schema 99, newer than/
        ]
      ]
      const target = join(place, "target")
      for (const [backup, message] of cases) {
        assert.match(yield* failure(Restore.restore({ backup, directory: target, force: false })), message, backup)
        assert.deepStrictEqual(
          existsSync(target) ? names(target).filter(name => !name.endsWith(".lock")) : [],
          [],
          backup
        )
      }
      yield* inStore(directory)(
        Effect.map(failure(Restore.restore({ backup: good, directory, force: true })), message =>
          assert.match(message, /kv\.lock is locked: another process has this store open/)
        )
      )
      const linked = yield* temporaryDirectory
      symlinkSync(join(directory, "kv.db"), join(linked, "kv.db"))
      assert.match(yield* failure(Restore.restore({ backup: good, directory: linked, force: true })), /symbolic link$/)
    })
  )

  it.scopedLive("gives histories of sessions other epochs, and leaves none beside a store that comes alone", () =>
    Effect.gen(function* () {
      const directory = yield* store(1)
      const sessions = yield* makeSessions(directory, "tenant/one")
      const place = yield* temporaryDirectory
      const [both, alone] = [join(place, "both"), join(place, "alone.db")]
      assert.strictEqual((yield* backUp(directory, both)).sessions, 1)
      assert.strictEqual((yield* backUp(directory, alone, { storeOnly: true })).sessions, null)
      yield* Restore.restore({ backup: both, directory, force: true })
      const db = new Database(sessions, { readonly: true })
      assert.match(db.prepare<[], string>("SELECT epoch FROM histories").pluck().get()!, /^[0-9a-f]{32}$/)
      db.close()
      const { aside } = yield* Restore.restore({ backup: alone, directory, force: true })
      assert.isFalse(existsSync(sessions))
      assert.isTrue(existsSync(join(aside!, "sessions.db")))
    })
  )

  it.scopedLive("is not finished by what somebody else has put there, whatever its name", () =>
    Effect.gen(function* () {
      const directory = yield* store(2)
      const backup = join(yield* temporaryDirectory, "backup")
      yield* backUp(directory, backup)
      yield* inStore(directory)(put("n", "later", 1))
      const isUntouched = inStore(directory)(Effect.map(lastSeq, seq => assert.strictEqual(seq, 3)))
      // Both are stores, but none of them is what a restore has made ready.
      yield* Restore.restore({ backup, directory: join(directory, "restored"), force: false })
      yield* isUntouched
      assert.isTrue(existsSync(join(directory, "restored", "kv.db")))
      const taken = join(directory, "restore.ready")
      renameSync(join(directory, "restored"), taken)
      const files = () => names(directory).filter(name => !name.endsWith(".lock"))
      const before = files()
      const opened = yield* Effect.exit(isUntouched)
      assert.isTrue(Exit.isFailure(opened))
      assert.match(String(opened), /restore\.ready is not of a restore, whose name it has: move it away/)
      assert.deepStrictEqual(files(), before)
      assert.match(yield* failure(Restore.restore({ backup, directory, force: true })), /restore\.ready is not of a/)
      renameSync(taken, join(directory, "other"))
      yield* isUntouched
      const reserved = [taken, `${taken}/`, join(directory, "restore.0123456789abcdef.part")]
      for (const path of reserved) {
        const refusals = [Restore.restore({ backup, directory: path, force: true }), backUp(directory, path)]
        for (const refusal of refusals) {
          assert.match(yield* failure<unknown, Backup.BackupFailed>(refusal), /has a name that a restore gives$/)
        }
        assert.isFalse(existsSync(path))
      }
    })
  )

  it.scopedLive("is as if it had not begun, or whole, wherever it is killed", () =>
    Effect.gen(function* () {
      const good = yield* store(2)
      const bad = yield* store(4)
      yield* makeSessions(bad)
      writeFileSync(join(bad, "kv.db-wal"), "")
      for (let calls = 0, isWhole = false; !isWhole; calls++) {
        const directory = yield* temporaryDirectory
        const draft = join(directory, "restore.0123456789abcdef.part")
        mkdirSync(draft)
        for (const name of ["kv.db", "kv.epoch"]) copyFileSync(join(good, name), join(draft, name))
        for (const name of names(bad)) copyFileSync(join(bad, name), join(directory, name))
        Restored.commit(directory, draft, "aside")
        let left = calls
        const once = (change: () => void): void => {
          if (left-- === 0) throw new Error("killed")
          change()
        }
        try {
          Restored.finish(directory, {
            makeDirectory: path => once(() => mkdirSync(path)),
            rename: (from, to) => once(() => renameSync(from, to)),
            unlink: path => once(() => unlinkSync(path)),
            remove: path => once(() => rmSync(path, { recursive: true }))
          })
          assert.isFalse(Restored.isUnfinished(directory))
          isWhole = true
        } catch {
          assert.isTrue(Restored.isUnfinished(directory))
        }
        yield* inStore(directory)(Effect.map(lastSeq, seq => assert.strictEqual(seq, 2, `killed at ${calls}`)))
        assert.deepStrictEqual(
          names(directory).filter(name => name.startsWith("sessions.db")),
          []
        )
        yield* inStore(join(directory, "aside"))(Effect.map(lastSeq, seq => assert.strictEqual(seq, 4)))
        if (isWhole) assert.isAbove(calls, 8)
      }
    })
  )
})
