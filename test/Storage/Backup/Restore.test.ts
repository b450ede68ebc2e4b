/** Restores of backups into data directories. */
import fs, {
  appendFileSync,
  chownSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
  writeSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect, Exit, Fiber } from "effect"
import * as Restore from "../../../src/Storage/Backup/Restore.ts"
import type * as Backup from "../../../src/Storage/Backup.ts"
import * as Fifo from "../../faults/Fifo.ts"
import { get, lastSeq, put } from "../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { test } from "../../Tests.ts"
import { epoch } from "../SqliteFixture.ts"
import { backUp, failure, inStore, makeSessions, names, store } from "./Fixture.ts"

describe("a restore", () => {
  test.scopedLive("restores the content of the backup, with a new epoch, and moves previous files aside", function* () {
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

  test.scopedLive(
    "refuses backups that are incomplete, damaged, newer or mixed, or in use, and changes nothing",
    function* () {
      const directory = yield* store(3)
      const place = yield* temporaryDirectory
      yield* makeSessions(directory)
      const good = join(place, "good")
      yield* backUp(directory, good)
      const other = join(place, "other")
      yield* makeSessions(directory, "tenant/one")
      yield* backUp(directory, other)
      /** The good backup under another name, with one of its files changed. */
      const changed = (name: string, file: string, change: (file: string) => void): string => {
        const backup = join(place, name)
        mkdirSync(backup)
        for (const each of readdirSync(good)) copyFileSync(join(good, each), join(backup, each))
        change(join(backup, file))
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
        [file("empty.db", path => truncateSync(path, 0)), /^kv\.db is damaged: it is empty$/],
        [
          changed("large", "backup.json", path => appendFileSync(path, " ".repeat(100_000))),
          /is damaged, or of a newer/
        ],
        [changed("nothing", "backup.json", path => rmSync(path)), /is not a backup: it has no backup\.json$/],
        [changed("garbled", "backup.json", path => appendFileSync(path, "}")), /is damaged, or of a newer/],
        [changed("missing", "sessions.db", path => rmSync(path)), /sessions\.db is missing/],
        [changed("short", "kv.db", path => truncateSync(path, 4096)), /has 4096 bytes, and backup\.json says/],
        [
          changed("bits", "kv.db", path => writeSync(openSync(path, "r+"), "x", 5000)),
          /kv\.db is damaged, or not of this backup/
        ],
        [
          changed("mixed", "sessions.db", path => copyFileSync(join(other, "sessions.db"), path)),
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
      const itself = Restore.restore({ backup: `${good}/`, directory: good, force: true })
      assert.match(yield* failure(itself), /is the data directory itself$/)
      const linked = yield* temporaryDirectory
      symlinkSync(join(directory, "kv.db"), join(linked, "kv.db"))
      assert.match(yield* failure(Restore.restore({ backup: good, directory: linked, force: true })), /symbolic link$/)
    }
  )

  test.scopedLive(
    "gives histories of sessions new epochs, and leaves none with the backup of a store alone",
    function* () {
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
    }
  )

  test.scopedLive("is not finished with files of another program, whatever their names", function* () {
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
    assert.match(String(opened), /restore\.ready has the name of a restore but is not one: move it away/)
    assert.deepStrictEqual(files(), before)
    assert.match(
      yield* failure(Restore.restore({ backup, directory, force: true })),
      /restore\.ready has the name of a/
    )
    renameSync(taken, join(directory, "other"))
    yield* isUntouched
    const reserved = [taken, `${taken}/`, join(directory, "restore.0123456789abcdef.part")]
    for (const path of reserved) {
      const refusals = [Restore.restore({ backup, directory: path, force: true }), backUp(directory, path)]
      for (const refusal of refusals) {
        assert.match(yield* failure<unknown, Backup.BackupFailed>(refusal), /has a name that is reserved for restores$/)
      }
      assert.isFalse(existsSync(path))
    }
  })

  test.scoped("keeps what earlier ones have moved aside, also if the clock is stopped", function* () {
    const directory = yield* store(3)
    const backup = join(yield* temporaryDirectory, "backup")
    yield* backUp(directory, backup)
    const asides: Array<string | null> = []
    for (const key of ["first", "second"]) {
      yield* inStore(directory)(put("n", key, 1))
      asides.push((yield* Restore.restore({ backup, directory, force: true })).aside)
    }
    assert.deepStrictEqual(asides, [
      join(directory, "before-restore-1970-01-01T00-00-00-000Z"),
      join(directory, "before-restore-1970-01-01T00-00-00-000Z.2")
    ])
    assert.strictEqual((yield* inStore(asides[0]!)(get("n", "first")))._tag, "Some")
  })
})

describe("a copy of a file", () => {
  test.scopedLive("is interrupted at once on a disk that does not answer", function* () {
    const [fifo] = (yield* Fifo.make(1)).paths
    const target = join(yield* temporaryDirectory, "copy")
    const copying = yield* Effect.fork(Restore.copyFile(fifo!, target, () => {}))
    yield* Effect.yieldNow()
    assert.isTrue(Exit.isInterrupted(yield* Fiber.interrupt(copying)))
  })

  test.scopedLive("is flushed after its last byte", function* () {
    const directory = yield* temporaryDirectory
    const source = join(directory, "source")
    const bytes = 3 * 1024 * 1024 + 1
    writeFileSync(source, Buffer.alloc(bytes, 7))
    const flushes: Array<number> = []
    const { fsync } = fs
    const recording: typeof fsync = Object.assign((descriptor: number, done: fs.NoParamCallback) => {
      flushes.push(statSync(join(directory, "target")).size)
      fsync(descriptor, done)
    }, fsync)
    yield* Effect.acquireRelease(
      Effect.sync(() => Object.assign(fs, { fsync: recording })),
      () => Effect.sync(() => Object.assign(fs, { fsync }))
    )
    yield* Restore.copyFile(source, join(directory, "target"), () => {})
    assert.deepStrictEqual(flushes, [bytes])
  })
})

describe("a restore that fails", () => {
  it.scopedLive.skipIf(process.getuid?.() !== 0)(
    "by root leaves no files of root in the data directory of another user",
    () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const place = yield* temporaryDirectory
        writeFileSync(join(place, "text.db"), "no database")
        chownSync(directory, 1234, 1235)
        const backup = join(place, "text.db")
        assert.match(yield* failure(Restore.restore({ backup, directory, force: false })), /is damaged/)
        const owners = () =>
          names(directory).map(name => {
            const { gid, uid } = statSync(join(directory, name))
            return [name, uid, gid]
          })
        const made = ["kv.lock", 1234, 1235]
        assert.deepStrictEqual(owners(), [made, ["sessions.lock", 1234, 1235]])
        // An existing file is not changed.
        chownSync(join(directory, "sessions.lock"), 77, 78)
        yield* failure(Restore.restore({ backup, directory, force: false }))
        assert.deepStrictEqual(owners(), [made, ["sessions.lock", 77, 78]])
      })
  )
})
