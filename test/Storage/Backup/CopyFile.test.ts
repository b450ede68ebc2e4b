/** Copies of the files of backups. */
import { open, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { copyFile } from "../../../src/Storage/Backup/CopyFile.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"

/** Records how many bytes a file has at each flush of an open file. */
const recordFlushes = (file: string) =>
  Effect.gen(function* () {
    const handle = yield* Effect.acquireRelease(
      Effect.promise(() => open(file)),
      handle => Effect.promise(() => handle.close())
    )
    const flushes: Array<number> = []
    yield* Effect.acquireRelease(
      Effect.sync(() => {
        const prototype = Object.getPrototypeOf(handle) as typeof handle
        const { sync } = prototype
        prototype.sync = async function () {
          flushes.push((await this.stat()).size)
          await sync.call(this)
        }
        return () => {
          prototype.sync = sync
        }
      }),
      restore => Effect.sync(restore)
    )
    return flushes
  })

describe("a copy of a file", () => {
  it.scopedLive("is flushed after its last byte", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const source = join(directory, "source")
      const bytes = 3 * 1024 * 1024 + 1
      yield* Effect.promise(() => writeFile(source, Buffer.alloc(bytes, 7)))
      const flushes = yield* recordFlushes(source)
      yield* copyFile(source, join(directory, "target"), () => {})
      assert.deepStrictEqual(flushes, [bytes])
    })
  )
})
