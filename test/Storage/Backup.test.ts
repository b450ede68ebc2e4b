/** Backups of data directories within this process. Copies are made in threads, as by the command. */
import { existsSync, openSync, readFileSync, writeFileSync, writeSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber } from "effect"
import { parse } from "../../src/Storage/Backup/Manifest.ts"
import type * as Backup from "../../src/Storage/Backup.ts"
import { put } from "../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { backUp, epoch, failure, inStore, names, store } from "./Backup/Fixture.ts"

describe("a backup", () => {
  it.scopedLive(
    "has both databases and describes them; it appears when it is complete, and is only replaced with --force",
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
        assert.match(yield* failure(backUp(directory, target)), /backup already exists$/)
        assert.strictEqual((yield* backUp(directory, target, { force: true })).lastSeq, made.lastSeq)
        writeFileSync(join(target, "own"), "precious")
        assert.match(
          yield* failure(backUp(directory, target, { force: true })),
          /already exists, and is not a backup of this kind$/
        )
        assert.deepStrictEqual(names(place), ["backup"])
      })
  )

  it.scopedLive("leaves no files when it is interrupted, or cannot be verified", () =>
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
