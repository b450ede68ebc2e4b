/** Restores from the file of a store, which may be in use or lack changes. */
import { chmodSync, copyFileSync, linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import * as Restore from "../../../src/Storage/Backup/Restore.ts"
import * as Restored from "../../../src/Storage/Sqlite/Database/Opening/Restored.ts"
import * as OtherUser from "../../faults/OtherUser.ts"
import { lastSeq, put } from "../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { test } from "../../Tests.ts"
import { backUp, failure, inStore, names, store } from "./Fixture.ts"

describe("a restore of the file of a store", () => {
  test.scopedLive("is refused while the file is in use, or its log has changes; it can be undone", function* () {
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

    // What a restore moved aside includes changes that were only in the log.
    const { aside } = yield* restoreTo(alone, "killed", true)
    assert.include(names(aside!), "kv.db-wal")
    assert.match(yield* failure(restoreTo(join(aside!, "kv.db"), "killed", true)), unclosed)
    yield* inStore(killed)(put("n", "after the restore", 1))
    const undo = join(place, "undo")
    yield* backUp(aside!, undo)
    assert.strictEqual((yield* restoreTo(undo, "killed", true)).lastSeq, 3)
    yield* inStore(killed)(Effect.map(lastSeq, seq => assert.strictEqual(seq, 3)))
  })

  test.scopedLive("is refused if it is unknown whether a service has the file open", function* () {
    const live = yield* store(2)
    const place = yield* temporaryDirectory
    for (const directory of [live, place]) chmodSync(directory, 0o777)
    chmodSync(join(live, "kv.db"), 0o644)
    chmodSync(join(live, "kv.lock"), 0)
    const restored = (name: string) =>
      Effect.zipRight(
        OtherUser.become,
        Restore.restore({ backup: join(live, "kv.db"), directory: join(place, name), force: false })
      ).pipe(Effect.scoped)
    assert.match(
      yield* failure(restored("unreadable")),
      /kv\.lock cannot be locked \(SQLITE_CANTOPEN: .*\), and a service may have .*kv\.db open$/
    )
    // One that can only be read shows that a service has it, and keeps one from it.
    chmodSync(join(live, "kv.lock"), 0o444)
    yield* inStore(live)(
      Effect.map(failure(restored("used")), message => assert.match(message, /kv\.db is in use by a service$/))
    )
    assert.strictEqual((yield* restored("readable")).lastSeq, 2)
    // The lock of another program.
    writeFileSync(join(place, "copy.lock"), "4711")
    copyFileSync(join(live, "kv.db"), join(place, "copy.db"))
    const other = { backup: join(place, "copy.db"), directory: join(place, "other"), force: false }
    assert.strictEqual((yield* Restore.restore(other)).lastSeq, 2)
  })

  test.scopedLive("is refused if the file is written in the meantime, or its log cannot be found", function* () {
    const directory = yield* store(2)
    const place = yield* temporaryDirectory
    const alone = join(place, "alone.db")
    yield* backUp(directory, alone, { storeOnly: true })
    const restored = (change: () => void) => {
      let isChanged = false
      const report = () => {
        if (!isChanged) change()
        isChanged = true
      }
      return failure(Restore.restore({ backup: alone, directory: join(place, "to"), force: false, report }))
    }
    const bytes = readFileSync(alone)
    const written = /alone\.db was written while it was copied$/
    assert.match(yield* restored(() => writeFileSync(alone, bytes)), written)
    assert.match(yield* restored(() => writeFileSync(`${alone}-wal`, "changes")), /alone\.db is not closed/)
    rmSync(`${alone}-wal`)
    linkSync(join(directory, "kv.db"), join(place, "linked.db"))
    const linked = Restore.restore({ backup: join(place, "linked.db"), directory: join(place, "to"), force: false })
    assert.match(yield* failure(linked), /linked\.db has several names \(hard links\), and its log may belong to/)
    const special = Restore.restore({ backup: "/dev/null", directory: join(place, "to"), force: false })
    assert.match(yield* failure(special), /^\/dev\/null is neither a directory nor a file$/)
    // Its log was already moved aside.
    const draft = join(directory, "restore.0123456789abcdef.part")
    mkdirSync(draft)
    Restored.commit(directory, draft, "aside")
    rmSync(join(place, "linked.db"))
    const unfinished = Restore.restore({
      backup: join(directory, "kv.db"),
      directory: join(place, "to"),
      force: false
    })
    assert.match(yield* failure(unfinished), /has a restore that was not finished$/)
  })
})
