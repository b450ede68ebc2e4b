/** Backups of data directories within this process. Copies are made in threads, as by the command. */

import {
  copyFileSync,
  cpSync,
  existsSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
  writeSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe } from "@effect/vitest"
import { Clock, Deferred, Effect, Exit, Fiber } from "effect"
import { histories, parse } from "../../src/Storage/Backup/Manifest.ts"
import * as Restore from "../../src/Storage/Backup/Restore.ts"
import type * as Backup from "../../src/Storage/Backup.ts"
import * as Restored from "../../src/Storage/Sqlite/Database/Opening/Restored.ts"
import * as Opening from "../../src/Storage/Sqlite/Database/Opening.ts"
import { lastSeq, put } from "../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { test } from "../Tests.ts"
import { backUp, failure, inStore, names, store } from "./Backup/Fixture.ts"
import { epoch } from "./SqliteFixture.ts"

describe("a backup", () => {
  test.scopedLive(
    "has both databases and describes them; it appears when it is complete, and is only replaced with --force",
    function* () {
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
      assert.match(yield* failure(backUp(directory, target)), /backup already exists$/)
      assert.strictEqual((yield* backUp(directory, `${target}/`, { force: true })).lastSeq, made.lastSeq)
      writeFileSync(join(target, "own"), "precious")
      assert.match(
        yield* failure(backUp(directory, target, { force: true })),
        /already exists, and is not a backup of this kind$/
      )
      assert.deepStrictEqual(names(place), ["backup"])
    }
  )

  test.scopedLive("leaves no files when it is interrupted, or cannot be verified", function* () {
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
})

describe("a backup of a data directory", () => {
  test.scopedLive("fails if a file is replaced in the meantime, or a restore begins", function* () {
    const place = yield* temporaryDirectory
    const other = yield* store(7)
    const commit = (directory: string) => {
      const draft = join(directory, "restore.0123456789abcdef.part")
      mkdirSync(draft)
      copyFileSync(join(other, "kv.db"), join(draft, "kv.db"))
      Restored.commit(directory, draft, "aside")
    }
    const replace = (name: string) => (directory: string) => {
      const file = join(directory, name)
      copyFileSync(file, `${file}.copy`)
      renameSync(`${file}.copy`, file)
    }
    const cases: ReadonlyArray<readonly [change: (directory: string) => void, message: RegExp]> = [
      [commit, /has a restore that was not finished$/],
      [directory => [commit(directory), Restored.finish(directory)], /kv\.db was replaced while it was copied$/],
      [replace("sessions.db"), /sessions\.db was replaced while it was copied$/]
    ]
    for (const [change, message] of cases) {
      const directory = yield* store(2)
      yield* Effect.scoped(Opening.open(directory, histories.format))
      let isChanged = false
      const made = backUp(directory, join(place, "backup"), {
        report: () => {
          if (!isChanged) change(directory)
          isChanged = true
        }
      })
      assert.match(yield* failure(made), message)
      assert.deepStrictEqual(names(place), [])
    }
  })

  test.scopedLive("is none where a service makes histories of sessions before it is copied", function* () {
    const [directory, place] = [yield* store(2), yield* temporaryDirectory]
    const make = () => writeFileSync(join(directory, "sessions.db"), "")
    // The time is asked once it is known what is copied, and before that begins.
    const clock = Object.assign(Clock.make(), {
      currentTimeMillis: Effect.sync(() => {
        make()
        return 0
      })
    })
    const target = join(place, "backup")
    const early = Effect.withClock(backUp(directory, target), clock)
    assert.match(yield* failure(early), /sessions\.db was created in the meantime$/)
    rmSync(join(directory, "sessions.db"))
    // What comes later is of another moment.
    assert.strictEqual((yield* backUp(directory, target, { report: make })).sessions, null)
  })

  test.scopedLive("fails if a file cannot be reached; only a missing file is left out", function* () {
    const place = yield* temporaryDirectory
    for (const to of ["nowhere.db", "sessions.db"]) {
      const directory = yield* store(1)
      symlinkSync(to, join(directory, "sessions.db"))
      assert.match(yield* failure(backUp(directory, join(place, "backup"))), /sessions\.db cannot be read: /)
      assert.strictEqual((yield* backUp(directory, join(place, `alone of ${to}`), { storeOnly: true })).entries, 1)
    }
    const linked = yield* temporaryDirectory
    symlinkSync("nowhere.db", join(linked, "kv.db"))
    assert.match(yield* failure(backUp(linked, join(place, "backup"))), /kv\.db cannot be read: /)
    const empty = yield* temporaryDirectory
    assert.match(yield* failure(backUp(empty, join(place, "backup"))), /has no store: there is no kv\.db$/)
  })
})

describe("the target of a backup", () => {
  test.scopedLive("replaces nothing but a backup, whatever --force says", function* () {
    const [directory, other] = [yield* store(2), yield* store(5)]
    const place = yield* temporaryDirectory
    const alone = { storeOnly: true, force: true }
    const file = (name: string, content: string | Buffer): string => {
      const path = join(place, name)
      writeFileSync(path, content)
      return path
    }
    const content = readFileSync(join(other, "kv.db"))
    const unclosed = file("unclosed.db", content)
    file("unclosed.db-wal", "changes")
    const linked = join(place, "linked.db")
    linkSync(join(directory, "kv.db"), linked)
    const served = file("served.db", content)
    file("served.epoch", "")
    const cases: ReadonlyArray<readonly [path: string, message: RegExp]> = [
      [join(directory, "kv.db"), /kv\.db has the name of a file of a data directory$/],
      [join(other, "kv.db"), /kv\.db has the name of a file of a data directory$/],
      [join(other, "sessions.db"), /sessions\.db has the name of a file of a data directory$/],
      [join(other, "kv.epoch"), /kv\.epoch has the name of a file of a data directory$/],
      [served, /served\.db has the name of a file of a data directory$/],
      [linked, /linked\.db is the store that is backed up$/],
      [unclosed, /unclosed\.db is not closed: unclosed\.db-wal has changes that it lacks$/],
      [file("text.txt", "precious"), /text\.txt already exists, and is not a backup of this kind$/],
      [file("other.db", Buffer.alloc(4096, "SQLite format 3\0")), /other\.db already exists, and is not a backup/]
    ]
    for (const [path, message] of cases) {
      const before = existsSync(path) ? readFileSync(path) : undefined
      assert.match(yield* failure(backUp(directory, path, alone)), message, path)
      assert.deepStrictEqual(existsSync(path) ? readFileSync(path) : undefined, before, path)
    }
    assert.match(yield* failure(backUp(directory, join(other, "sessions.db"))), /has the name of a file of a data/)
    yield* inStore(other)(Effect.map(lastSeq, seq => assert.strictEqual(seq, 5)))

    for (const path of [file("earlier.db", content), file("empty.db", ""), join(directory, "copy.db")]) {
      assert.strictEqual((yield* backUp(directory, path, alone)).lastSeq, 2, path)
    }
    assert.strictEqual((yield* backUp(directory, join(place, "kv.db"), { storeOnly: true })).lastSeq, 2)
  })

  test.scopedLive("is put right where the replacement of an earlier backup was not finished", function* () {
    const directory = yield* store(1)
    const place = yield* temporaryDirectory
    const [target, earlier] = [join(place, "backup"), join(place, "backup.0123456789abcdef.part.old")]
    yield* backUp(directory, target)
    // Killed between its renames: the earlier backup has lost its name.
    renameSync(target, earlier)
    const restored = Restore.restore({ backup: target, directory: join(place, "data"), force: false })
    const { hint, message } = yield* Effect.flip(restored)
    assert.match(message, /backup does not exist$/)
    assert.strictEqual(hint, `${earlier} is the earlier backup, which a killed run was about to replace: restore that.`)
    assert.match(yield* failure(backUp(directory, target)), /backup already exists$/)
    assert.deepStrictEqual(names(place), ["backup"])
    assert.strictEqual((yield* backUp(directory, target, { force: true })).entries, 1)

    // Killed behind them, and while the earlier one was removed.
    for (const left of [["backup.json", "kv.db"], ["kv.db"], []]) {
      cpSync(target, earlier, { recursive: true })
      for (const name of names(earlier)) if (!left.includes(name)) rmSync(join(earlier, name))
      yield* backUp(directory, target, { force: true })
      assert.deepStrictEqual(names(place), ["backup"])
    }

    // What is not of a backup stays, and what only looks like one.
    cpSync(target, earlier, { recursive: true })
    for (const name of [join(earlier, "own"), join(place, "backup.mine.part.old")]) writeFileSync(name, "precious")
    yield* backUp(directory, target, { force: true })
    rmSync(target, { recursive: true })
    yield* backUp(directory, target)
    assert.deepStrictEqual(names(place), ["backup", "backup.0123456789abcdef.part.old", "backup.mine.part.old"])
    assert.isTrue(existsSync(join(earlier, "own")))
  })

  test.scopedLive("is no link, no other kind of file, and nothing below a file", function* () {
    const directory = yield* store(1)
    const place = yield* temporaryDirectory
    yield* backUp(directory, join(place, "backup"))
    yield* backUp(directory, join(place, "file.db"), { storeOnly: true })
    const link = (to: string) => {
      symlinkSync(join(place, to), join(place, `link to ${to}`))
      return join(place, `link to ${to}`)
    }
    const taken = /already exists, and is not a backup of this kind$/
    const cases = [
      [link("backup"), false, taken],
      [link("file.db"), true, taken],
      [link("nowhere"), false, taken],
      [join(place, "backup"), true, taken],
      [join(place, "file.db"), false, taken],
      ["/dev/null", true, taken],
      [join(place, "file.db", "below"), false, /below cannot be used: .*ENOTDIR/],
      [join(place, "nowhere", "below"), false, /^There is no directory for /]
    ] as const
    const before = names(place)
    for (const [path, storeOnly, message] of cases) {
      assert.match(yield* failure(backUp(directory, path, { storeOnly, force: true })), message, path)
    }
    assert.deepStrictEqual(names(place), before)
    mkdirSync(join(place, "empty"))
    assert.strictEqual((yield* backUp(directory, join(place, "empty/"))).entries, 1)
    // A directory that is reached by a link is one.
    symlinkSync(place, join(directory, "elsewhere"))
    assert.strictEqual((yield* backUp(directory, join(directory, "elsewhere", "other"))).entries, 1)
  })
})
