/** An open database has one owner, regardless of its path, also if its lock is removed. */

import { chmodSync, linkSync, readdirSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect } from "@effect/vitest"
import { Cause, Effect, Logger, Option } from "effect"
import { Store } from "../../../../../src/Kv/Store.ts"
import * as Opening from "../../../../../src/Storage/Sqlite/Database/Opening.ts"
import { format } from "../../../../../src/Storage/Sqlite/Kv/Schema.ts"
import * as Sqlite from "../../../../../src/Storage/Sqlite.ts"
import * as OtherUser from "../../../../faults/OtherUser.ts"
import * as Owner from "../../../../faults/Owner.ts"
import { get, lastSeq, put } from "../../../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../../../TemporaryDirectory.ts"
import { test } from "../../../../Tests.ts"
import { during, refusal, using } from "../../../SqliteFixture.ts"

describe("the lock", () => {
  test.scoped("excludes a second store of this process, by any path, until the first is closed", function* () {
    const directory = yield* temporaryDirectory
    const link = `${directory}-link`
    yield* Effect.acquireRelease(
      Effect.sync(() => symlinkSync(directory, link)),
      () => Effect.sync(() => rmSync(link))
    )
    yield* during(directory, function* () {
      yield* put("n", "a", 1)
      for (const path of [directory, link]) {
        const refused = yield* refusal(path)
        expect(refused?.message).toMatch(/kv\.lock is locked: another process has this store open/)
        // What the program that it ends prints: a sentence, and no stack.
        expect(Cause.pretty(Cause.fail(refused))).toBe(`StoreRefused: ${refused?.message}`)
      }
      yield* put("n", "a", 2)
    })
    expect(yield* using(directory, lastSeq)).toBe(2)
  })

  test.scopedLive("excludes other processes, and is released with its process however that dies", function* () {
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
})

describe("a database that is a symbolic link", () => {
  const setup = Effect.gen(function* () {
    const [real, first, second] = yield* Effect.all([temporaryDirectory, temporaryDirectory, temporaryDirectory])
    yield* using(real, put("n", "a", 1))
    for (const directory of [first, second]) symlinkSync(join(real, "kv.db"), join(directory, "kv.db"))
    return { real, first, second }
  })

  test.scoped("has one owner, regardless of its path", function* () {
    const { first, real, second } = yield* setup
    for (const [owner, ...others] of [
      [first, second, real],
      [real, first, second]
    ] as const) {
      yield* during(owner, function* () {
        yield* put("n", "a", 2)
        for (const other of others) expect((yield* refusal(other))?.message).toMatch(/kv\.lock is locked/)
        yield* put("n", "a", 3)
      })
    }
    expect(yield* using(second, lastSeq)).toBe(5)
    expect(readdirSync(first)).toEqual(["kv.db"])
  })

  test.scoped("is refused if it is dangling, and is unchanged", function* () {
    const { first, real } = yield* setup
    rmSync(join(real, "kv.db"))
    expect((yield* refusal(first))?.message).toMatch(/kv\.db leads to no file/)
    expect(readdirSync(first)).toEqual(["kv.db"])
    expect(readdirSync(real)).toEqual(["kv.epoch", "kv.lock"])
  })

  test.scoped("or a hard link is refused, because each name would have a separate log", function* () {
    const { real, second } = yield* setup
    const other = yield* temporaryDirectory
    linkSync(join(real, "kv.db"), join(other, "kv.db"))
    for (const directory of [real, second, other]) {
      expect((yield* refusal(directory))?.message).toMatch(/kv\.db has several names/)
    }
    rmSync(join(other, "kv.db"))
    expect(yield* using(real, lastSeq)).toBe(1)
  })
})

const outcome = <A, E extends { readonly _tag: string }, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.match(effect, { onFailure: error => error._tag, onSuccess: () => "ok" })

const ready = Effect.flatMap(Store, store => store.ready)

for (const writer of ["inline", "thread"] as const) {
  describe(`a lock that is removed, written ${writer}`, () => {
    test.scopedLive(
      "is locked again, unless another process does so first: then no other acknowledges a write",
      function* () {
        const directory = yield* temporaryDirectory
        yield* Effect.gen(function* () {
          yield* put("n", "a", 1)
          unlinkSync(join(directory, "kv.lock"))
          expect(yield* outcome(put("n", "b", 1))).toBe("ok")
          expect((yield* Owner.start(directory)).opened).toMatchObject({ error: "StoreRefused" })
          expect(yield* outcome(put("n", "c", 1))).toBe("ok")
          unlinkSync(join(directory, "kv.lock"))
          const other = yield* Owner.start(directory)
          expect(other.opened).toEqual({ ok: "open" })
          for (let attempt = 0; attempt < 3; attempt++) {
            expect(yield* outcome(put("n", "mine", attempt))).toBe("StoreUnavailable")
            expect(yield* ready).toBe(false)
            expect(yield* other.ask({ do: "set", key: "theirs", value: String(attempt) })).toHaveProperty("ok")
          }
          // Only writes in flight when the loss was noticed may be stored.
          expect(Option.map(yield* get("n", "mine"), ({ version }) => version)).not.toEqual(Option.some(2))
          yield* other.end
          expect(yield* outcome(put("n", "b", 1))).toBe("ok")
          expect(Option.map(yield* get("n", "theirs"), ({ value }) => value)).toEqual(Option.some('"2"'))
        }).pipe(
          Effect.provide(Sqlite.layer({ directory, writer })),
          Effect.provide(Logger.remove(Logger.defaultLogger))
        )
      }
    )
  })
}

describe("a lock that can only be read", () => {
  test.scoped("is refused: it would exclude no process", function* () {
    const directory = yield* temporaryDirectory
    chmodSync(directory, 0o777)
    writeFileSync(join(directory, "kv.lock"), "", { mode: 0o444 })
    const opened = Effect.zipRight(OtherUser.become, Opening.open(directory, format))
    const refused = yield* Effect.flip(Effect.scoped(opened))
    expect(refused.message).toMatch(/kv\.lock can only be read by this user, and so locks no other process out/)
    chmodSync(join(directory, "kv.lock"), 0o666)
    yield* Effect.scoped(opened)
  })
})
