/** Which files and directories become a backup. */
import { existsSync, linkSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { lastSeq, put } from "../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../SqliteFixture.ts"
import { backUp, failure, inStore, names, store } from "./Fixture.ts"

describe("the target of a backup", () => {
  it.scopedLive("replaces nothing but a backup, whatever --force says", () =>
    Effect.gen(function* () {
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
        [file("text.txt", "precious"), /text\.txt is there already, and is not a backup of this kind$/],
        [file("other.db", Buffer.alloc(4096, "SQLite format 3\0")), /other\.db is there already, and is not a backup/]
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
  )

  it.scopedLive("may end in a slash", () =>
    Effect.gen(function* () {
      const directory = yield* store(1)
      const place = yield* temporaryDirectory
      mkdirSync(join(place, "empty"))
      for (const path of ["new/", "empty/", "new/"]) {
        const made = yield* backUp(directory, `${place}/${path}`, { force: path === "new/" })
        assert.strictEqual(made.lastSeq, 1)
      }
      assert.deepStrictEqual(names(place), ["empty", "new"])
      yield* inStore(directory)(put("n", "later", 1))
      assert.match(yield* failure(backUp(directory, `${place}/new/`)), /new\/? is there already$/)
    })
  )
})
