/** The files that a backup is made of. */
import { copyFileSync, mkdirSync, renameSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { histories } from "../../../src/Storage/Backup/Manifest.ts"
import * as Restored from "../../../src/Storage/Sqlite/Database/Opening/Restored.ts"
import * as Opening from "../../../src/Storage/Sqlite/Database/Opening.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { backUp, failure, names, store } from "./Fixture.ts"

describe("a backup of a data directory", () => {
  it.scopedLive("fails if a file is replaced in the meantime, or a restore begins", () =>
    Effect.gen(function* () {
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
  )

  it.scopedLive("fails if a service makes the first histories of sessions in the meantime", () =>
    Effect.gen(function* () {
      const [directory, place] = [yield* store(2), yield* temporaryDirectory]
      const report = () => writeFileSync(join(directory, "sessions.db"), "")
      const made = backUp(directory, join(place, "backup"), { report })
      assert.match(yield* failure(made), /sessions\.db was created in the meantime$/)
      assert.deepStrictEqual(names(place), [])
    })
  )

  it.scopedLive("fails if a file cannot be reached; only a missing file is left out", () =>
    Effect.gen(function* () {
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
  )
})
