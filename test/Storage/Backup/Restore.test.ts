/** What a restore takes as a backup, and what it leaves. */
import { chownSync, copyFileSync, mkdirSync, statSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Restore from "../../../src/Storage/Backup/Restore.ts"
import { lastSeq, put } from "../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../SqliteFixture.ts"
import { backUp, failure, inStore, names, store } from "./Fixture.ts"

describe("a restore of the file of a store", () => {
  it.scopedLive("is refused while the file is in use, or a log beside it has changes; it can be undone", () =>
    Effect.gen(function* () {
      const live = yield* store(2)
      const place = yield* temporaryDirectory
      const killed = join(place, "killed")
      mkdirSync(killed)
      const restoreTo = (backup: string, name: string, force = false) =>
        Restore.restore({ backup, directory: join(place, name), force })
      yield* inStore(live)(
        Effect.gen(function* () {
          yield* put("n", "later", 1)
          assert.match(yield* failure(restoreTo(join(live, "kv.db"), "to")), /kv\.db is in use by a service$/)
          for (const name of ["kv.db", "kv.db-wal"]) copyFileSync(join(live, name), join(killed, name))
        })
      )
      const unclosed = /kv\.db is not closed: kv\.db-wal has changes that it lacks$/
      assert.match(yield* failure(restoreTo(join(killed, "kv.db"), "to")), unclosed)
      const alone = join(place, "alone.db")
      yield* backUp(live, alone, { storeOnly: true })
      writeFileSync(`${alone}-wal`, "")
      writeFileSync(`${alone}-journal`, "changes")
      assert.match(yield* failure(restoreTo(alone, "to")), /alone\.db is not closed: alone\.db-journal has changes/)
      writeFileSync(`${alone}-journal`, "")
      assert.strictEqual((yield* restoreTo(alone, "to")).lastSeq, 3)
      const itself = failure(restoreTo(join(killed, "kv.db"), "killed", true))
      assert.match(yield* itself, /kv\.db is the store of .*killed itself$/)

      // What a restore moved aside comes back with what was in the log only.
      const { aside } = yield* restoreTo(alone, "killed", true)
      assert.include(names(aside!), "kv.db-wal")
      assert.match(yield* failure(restoreTo(join(aside!, "kv.db"), "killed", true)), unclosed)
      yield* inStore(killed)(put("n", "after the restore", 1))
      const undo = join(place, "undo")
      yield* backUp(aside!, undo)
      assert.strictEqual((yield* restoreTo(undo, "killed", true)).lastSeq, 3)
      yield* inStore(killed)(Effect.map(lastSeq, seq => assert.strictEqual(seq, 3)))
    })
  )
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
        // A file that was there stays as it was.
        chownSync(join(directory, "sessions.lock"), 77, 78)
        yield* failure(Restore.restore({ backup, directory, force: false }))
        assert.deepStrictEqual(owners(), [made, ["sessions.lock", 77, 78]])
      })
  )
})
