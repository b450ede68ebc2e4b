/** An open database has one owner, regardless of its path. */
import { linkSync, readdirSync, rmSync, symlinkSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Cause, Effect, Option } from "effect"
import * as Owner from "../../../../faults/Owner.ts"
import { get, lastSeq, put } from "../../../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../../../TemporaryDirectory.ts"
import { refusal, using } from "./Fixture.ts"

describe("the lock", () => {
  it.scoped("excludes a second store of this process, by any path, until the first is closed", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const link = `${directory}-link`
      yield* Effect.acquireRelease(
        Effect.sync(() => symlinkSync(directory, link)),
        () => Effect.sync(() => rmSync(link))
      )
      yield* using(
        directory,
        Effect.gen(function* () {
          yield* put("n", "a", 1)
          for (const path of [directory, link]) {
            const refused = yield* refusal(path)
            expect(refused?.message).toMatch(/kv\.lock is locked: another process has this store open/)
            // What the program that it ends prints: a sentence, and no stack.
            expect(Cause.pretty(Cause.fail(refused))).toBe(`StoreRefused: ${refused?.message}`)
          }
          yield* put("n", "a", 2)
        })
      )
      expect(yield* using(directory, lastSeq)).toBe(2)
    })
  )

  it.scopedLive("excludes other processes, and is released with its process however that dies", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const owner = yield* Owner.start(directory)
      expect(owner.opened).toEqual({ ok: "open" })
      expect(yield* owner.ask({ do: "set", key: "a", value: "kept" })).toEqual({ ok: 1 })
      expect((yield* refusal(directory))?.message).toMatch(/kv\.lock is locked/)
      expect(yield* owner.ask({ do: "set", key: "b", value: "kept" })).toEqual({ ok: 2 })
      yield* owner.kill("SIGKILL")
      const entry = yield* using(directory, Effect.zipRight(put("n", "c", 1), get("n", "b")))
      expect(Option.getOrThrow(entry).value).toBe('"kept"')
    })
  )

  it.scopedLive("of this process excludes others, which report the reason", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      yield* using(
        directory,
        Effect.gen(function* () {
          const other = yield* Owner.start(directory, { writer: "inline" })
          expect(other.opened).toMatchObject({ error: "StoreRefused" })
          yield* put("n", "a", 1)
        })
      )
      const next = yield* Owner.start(directory, { writer: "inline" })
      expect(next.opened).toEqual({ ok: "open" })
      expect(yield* next.ask({ do: "lastSeq" })).toEqual({ ok: 1 })
      yield* next.end
      expect(yield* using(directory, lastSeq)).toBe(1)
    })
  )
})

describe("a database that is a symbolic link", () => {
  const setup = Effect.gen(function* () {
    const [real, first, second] = yield* Effect.all([temporaryDirectory, temporaryDirectory, temporaryDirectory])
    yield* using(real, put("n", "a", 1))
    for (const directory of [first, second]) symlinkSync(join(real, "kv.db"), join(directory, "kv.db"))
    return { real, first, second }
  })

  it.scoped("has one owner, regardless of its path", () =>
    Effect.gen(function* () {
      const { first, real, second } = yield* setup
      for (const [owner, ...others] of [
        [first, second, real],
        [real, first, second]
      ] as const) {
        yield* using(
          owner,
          Effect.gen(function* () {
            yield* put("n", "a", 2)
            for (const other of others) expect((yield* refusal(other))?.message).toMatch(/kv\.lock is locked/)
            yield* put("n", "a", 3)
          })
        )
      }
      expect(yield* using(second, lastSeq)).toBe(5)
      expect(readdirSync(first)).toEqual(["kv.db"])
    })
  )

  it.scoped("is refused if it is dangling, and is unchanged", () =>
    Effect.gen(function* () {
      const { first, real } = yield* setup
      rmSync(join(real, "kv.db"))
      expect((yield* refusal(first))?.message).toMatch(/kv\.db leads to no file/)
      expect(readdirSync(first)).toEqual(["kv.db"])
      expect(readdirSync(real)).toEqual(["kv.epoch", "kv.lock"])
    })
  )

  it.scoped("or a hard link is refused, because each name would have a separate log", () =>
    Effect.gen(function* () {
      const { real, second } = yield* setup
      const other = yield* temporaryDirectory
      linkSync(join(real, "kv.db"), join(other, "kv.db"))
      for (const directory of [real, second, other]) {
        expect((yield* refusal(directory))?.message).toMatch(/kv\.db has several names/)
      }
      rmSync(join(other, "kv.db"))
      expect(yield* using(real, lastSeq)).toBe(1)
    })
  )
})
