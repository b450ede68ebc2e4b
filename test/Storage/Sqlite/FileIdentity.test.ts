import {
  copyFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  unlinkSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect, Fiber, Logger, Option, Schedule } from "effect"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { Store } from "../../../src/Kv/Store.ts"
import * as Sqlite from "../../../src/Storage/Sqlite.ts"
import * as Owner from "../../faults/Owner.ts"
import { get, lastSeq, put } from "../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../SqliteFixture.ts"

const using = <A, E, R>(directory: string, writer: "inline" | "thread", body: Effect.Effect<A, E, R>) =>
  Effect.provide(body, Sqlite.layer({ directory, writer })).pipe(Effect.provide(Logger.remove(Logger.defaultLogger)))

const ready = Effect.flatMap(Store, store => store.ready)

/** What a read or write comes to: its value, or the tag of its error. */
const outcome = <A, E extends { readonly _tag: string }, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.catchAll(effect, error => Effect.succeed(error._tag))

const valueOf = (key: string) =>
  Effect.map(
    get("n", key),
    Option.map(entry => entry.value)
  )

/** Whether a database is whole, and how many records its log has. */
const inspect = (file: string) => {
  const db = new Database(file, { readonly: true })
  const integrity = db.pragma("integrity_check", { simple: true })
  const records = db.prepare("SELECT count(*) FROM changes").pluck().get()
  db.close()
  return { integrity, records }
}

/** The database of a store that was closed after some writes, under another name. */
const backupOf = (directory: string, keys: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const other = yield* temporaryDirectory
    yield* using(
      other,
      "inline",
      Effect.forEach(keys, key => put("n", key, "backup"))
    )
    const backup = join(directory, "backup.db")
    copyFileSync(join(other, "kv.db"), backup)
    return backup
  })

/** Writes until it works: with a thread, the new file is opened a moment after the old one was missed. */
const putEventually = (key: string) =>
  put("n", key, "new").pipe(Effect.retry({ schedule: Schedule.spaced("10 millis"), times: 500 }))

for (const writer of ["inline", "thread"] as const) {
  describe(`the identity of the file, written ${writer}`, () => {
    it.scopedLive("no write is acknowledged while the file is missing, and writes continue when it is back", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const file = join(directory, "kv.db")
        yield* using(
          directory,
          writer,
          Effect.gen(function* () {
            yield* put("n", "a", 1)
            renameSync(file, `${file}.away`)
            expect(yield* outcome(put("n", "b", 1))).toBe("StoreUnavailable")
            expect(yield* outcome(get("n", "a"))).toBe("StoreUnavailable")
            expect(
              yield* outcome(
                Effect.scoped(Effect.flatMap(Store, store => store.listAll({ namespace: "n", prefix: "" })))
              )
            ).toBe("StoreUnavailable")
            expect(yield* outcome(Effect.flatMap(ChangeLog, log => log.expire))).toBe("StoreUnavailable")
            expect(yield* ready).toBe(false)
            expect(existsSync(file)).toBe(false)
            renameSync(`${file}.away`, file)
            expect(yield* ready).toBe(true)
            expect(yield* valueOf("a")).toEqual(Option.some("1"))
            expect((yield* put("n", "c", 1)).lastSeq).toBe(2)
          })
        )
        expect(inspect(file)).toEqual({ integrity: "ok", records: 2 })
      })
    )

    it.scopedLive("reads alone find the file when it is back", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const file = join(directory, "kv.db")
        yield* using(
          directory,
          writer,
          Effect.gen(function* () {
            yield* put("n", "a", 1)
            renameSync(file, `${file}.away`)
            expect(yield* outcome(put("n", "b", 1))).toBe("StoreUnavailable")
            expect(yield* outcome(valueOf("a"))).toBe("StoreUnavailable")
            renameSync(`${file}.away`, file)
            const value = yield* Effect.retry(valueOf("a"), { schedule: Schedule.spaced("10 millis"), times: 100 })
            expect(value).toEqual(Option.some("1"))
          })
        )
      })
    )

    it.scopedLive("a deleted file is not created again", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const file = join(directory, "kv.db")
        yield* using(
          directory,
          writer,
          Effect.gen(function* () {
            yield* put("n", "a", 1)
            unlinkSync(file)
            for (let attempt = 0; attempt < 3; attempt++) {
              expect(yield* outcome(put("n", "b", 1))).toBe("StoreUnavailable")
              expect(yield* ready).toBe(false)
            }
          })
        )
        expect(existsSync(file)).toBe(false)
      })
    )

    it.scopedLive("the store continues with a backup in its place", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const file = join(directory, "kv.db")
        const backup = yield* backupOf(directory, ["x", "y"])
        yield* using(
          directory,
          writer,
          Effect.gen(function* () {
            for (let index = 0; index < 20; index++) yield* put("n", `old${index}`, 1)
            const waiter = yield* Effect.fork(Effect.flatMap(ChangeLog, log => log.awaitPast(20)))
            yield* Effect.yieldNow()
            renameSync(file, `${file}.old`)
            renameSync(backup, file)
            expect(yield* outcome(put("n", "lost", 1))).toBe("StoreUnavailable")
            expect((yield* putEventually("z")).lastSeq).toBe(3)
            yield* Fiber.join(waiter)
            expect(yield* valueOf("x")).toEqual(Option.some('"backup"'))
            expect(yield* valueOf("old1")).toEqual(Option.none())
            expect(yield* lastSeq).toBe(3)
            expect(yield* ready).toBe(true)
          })
        )
        expect(inspect(file)).toEqual({ integrity: "ok", records: 3 })
        expect(inspect(`${file}.old`)).toEqual({ integrity: "ok", records: 20 })
      })
    )

    it.scopedLive("another file in its place is unchanged", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const file = join(directory, "kv.db")
        yield* using(
          directory,
          writer,
          Effect.gen(function* () {
            yield* put("n", "a", 1)
            renameSync(file, `${file}.away`)
            writeFileSync(file, "not a database\n".repeat(1000))
            const before = readFileSync(file)
            for (let attempt = 0; attempt < 3; attempt++) {
              expect(yield* outcome(put("n", "b", 1))).toBe("StoreUnavailable")
              expect(yield* outcome(get("n", "a"))).toBe("StoreUnavailable")
              expect(yield* ready).toBe(false)
            }
            expect(readFileSync(file).equals(before)).toBe(true)
            renameSync(`${file}.away`, file)
            yield* putEventually("c")
            expect(yield* valueOf("a")).toEqual(Option.some("1"))
          })
        )
        expect(inspect(file)).toEqual({ integrity: "ok", records: 2 })
      })
    )

    it.scopedLive("no acknowledged write is lost with the name of the write-ahead log", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const file = join(directory, "kv.db")
        yield* using(
          directory,
          writer,
          Effect.gen(function* () {
            yield* put("n", "a", 1)
            unlinkSync(`${file}-wal`)
            expect(yield* outcome(put("n", "lost", 1))).toBe("StoreUnavailable")
            yield* putEventually("b")
            expect(yield* valueOf("a")).toEqual(Option.some("1"))
          })
        )
        expect(inspect(file)).toEqual({ integrity: "ok", records: 2 })
      })
    )
  })
}

describe("the identity of the file", () => {
  it.scopedLive("a store that another process created in the same place is left to it", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      yield* using(
        directory,
        "inline",
        Effect.gen(function* () {
          yield* put("n", "a", 1)
          for (const name of readdirSync(directory)) rmSync(join(directory, name))
          const other = yield* Owner.start(directory)
          expect(other.opened).toEqual({ ok: "open" })
          expect(yield* outcome(put("n", "b", 1))).toBe("StoreUnavailable")
          expect(yield* other.ask({ do: "set", key: "theirs", value: "x" })).toEqual({ ok: 1 })
          expect(yield* outcome(put("n", "b", 1))).toBe("StoreUnavailable")
          expect(yield* ready).toBe(false)
          expect(yield* other.ask({ do: "lastSeq" })).toEqual({ ok: 1 })
          yield* other.end
          // The place is free again, and what lies there is a store.
          yield* putEventually("c")
          expect(yield* lastSeq).toBe(2)
        })
      )
    })
  )
})
