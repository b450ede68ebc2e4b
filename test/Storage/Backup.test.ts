/** Backups of data directories within this process. Copies are made in threads, as by the command. */
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  symlinkSync,
  writeFileSync,
  writeSync
} from "node:fs"
import { join } from "node:path"
import { assert, describe } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber } from "effect"
import { histories, parse } from "../../src/Storage/Backup/Manifest.ts"
import type * as Backup from "../../src/Storage/Backup.ts"
import * as Restored from "../../src/Storage/Sqlite/Database/Opening/Restored.ts"
import * as Opening from "../../src/Storage/Sqlite/Database/Opening.ts"
import { put } from "../suites/Store/Fixture.ts"
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

  test.scopedLive("fails if a service makes the first histories of sessions in the meantime", function* () {
    const [directory, place] = [yield* store(2), yield* temporaryDirectory]
    const report = () => writeFileSync(join(directory, "sessions.db"), "")
    const made = backUp(directory, join(place, "backup"), { report })
    assert.match(yield* failure(made), /sessions\.db was created in the meantime$/)
    assert.deepStrictEqual(names(place), [])
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
