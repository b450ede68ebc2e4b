/** Histories whose files are moved, replaced or taken away under the running process. */
import { copyFileSync, existsSync, readFileSync, renameSync, statSync, unlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect, Exit, Layer, Logger, Option, Schedule, Scope } from "effect"
import { SessionEvents } from "../../../../src/Gateway/SessionEvents.ts"
import { Limits } from "../../../../src/Limits.ts"
import * as Sqlite from "../../../../src/Storage/Sqlite/SessionEvents.ts"
import { temporaryDirectory } from "../../SqliteFixture.ts"

const quiet = Effect.provide(Logger.remove(Logger.defaultLogger))

const MiB = 1024 * 1024

const append = (after: number, text: string) =>
  Effect.flatMap(SessionEvents, events =>
    events.append({ session: "t/s", epoch: "e", after, timestamp: 1, texts: [text], recoveryState: null })
  )

const begin = Effect.flatMap(SessionEvents, events => events.open("t/s", "e"))

const texts = Effect.flatMap(SessionEvents, events => Effect.flatten(events.read("t/s", 0, 100))).pipe(
  Effect.map(({ events }) => events.map(({ text }) => text))
)

/** What an attempt comes to: its value, or the tag of its error. */
const outcome = <A, E extends { readonly _tag: string }, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.match(effect, { onFailure: error => error._tag, onSuccess: () => "ok" })

/** The new file is opened a moment after the old one was missed. */
const eventually = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.retry(effect, { schedule: Schedule.spaced("10 millis"), times: 500 })

const isWhole = (file: string) => {
  const db = new Database(file, { readonly: true })
  const answer = db.pragma("integrity_check", { simple: true })
  db.close()
  return answer === "ok"
}

for (const writer of ["inline", "thread"] as const) {
  describe(`The place of the histories, written ${writer}`, () => {
    const using = <A, E>(directory: string, body: Effect.Effect<A, E, SessionEvents>) =>
      quiet(Effect.provide(body, Sqlite.layer({ directory, writer })))

    it.scopedLive("nothing is acknowledged while the file is missing, and writes continue when it is back", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const file = join(directory, "sessions.db")
        yield* using(
          directory,
          Effect.gen(function* () {
            yield* begin
            yield* append(0, "1")
            renameSync(file, `${file}.away`)
            for (let i = 0; i < 3; i++) expect(yield* outcome(append(1, "lost"))).toBe("StoreUnavailable")
            expect(existsSync(file)).toBe(false)
            renameSync(`${file}.away`, file)
            yield* append(1, "2")
            expect(yield* texts).toEqual(["1", "2"])
          })
        )
        expect(isWhole(file)).toBe(true)
      })
    )

    it.scopedLive("nothing is read while the file is missing, and reads alone find it when it is back", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const file = join(directory, "sessions.db")
        yield* using(
          directory,
          Effect.gen(function* () {
            yield* begin
            yield* append(0, "1")
            expect(yield* texts).toEqual(["1"])
            renameSync(file, `${file}.away`)
            expect(yield* outcome(append(1, "lost"))).toBe("StoreUnavailable")
            for (let i = 0; i < 3; i++) expect(yield* outcome(texts)).toBe("StoreUnavailable")
            renameSync(`${file}.away`, file)
            expect(yield* eventually(texts)).toEqual(["1"])
          })
        )
      })
    )

    it.scopedLive("the write-ahead log is emptied when it is larger than the limit", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        yield* using(
          directory,
          Effect.gen(function* () {
            yield* begin
            for (let seq = 0; seq < 8; seq++) yield* append(seq, "x".repeat(512 * 1024))
            // The checkpoint comes behind the append that exceeds the limit.
            yield* append(8, "last")
            expect(statSync(join(directory, "sessions.db-wal")).size).toBeLessThan(2 * MiB)
          })
        ).pipe(
          Effect.provideServiceEffect(
            Limits,
            Effect.map(Limits, limits => ({ ...limits, walBytes: MiB }))
          )
        )
      })
    )

    it.scopedLive("reads are served from the start while another program locks the file, and writes after that", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        yield* using(directory, Effect.zipRight(begin, append(0, "1")))
        const other = new Database(join(directory, "sessions.db"))
        other.exec("BEGIN IMMEDIATE")
        yield* using(
          directory,
          Effect.gen(function* () {
            expect(yield* texts).toEqual(["1"])
            other.close()
            yield* eventually(append(1, "2"))
            expect(yield* texts).toEqual(["1", "2"])
          })
        )
      })
    )

    it.scopedLive("all is in the one file once it is closed", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        yield* using(directory, Effect.zipRight(Effect.zipRight(begin, append(0, "1")), texts))
        expect(existsSync(join(directory, "sessions.db-wal"))).toBe(false)
        expect(isWhole(join(directory, "sessions.db"))).toBe(true)
      })
    )

    it.scopedLive("another database of histories in its place is used, and the old one is intact", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const other = yield* temporaryDirectory
        const file = join(directory, "sessions.db")
        yield* using(other, Effect.zipRight(begin, append(0, "theirs")))
        copyFileSync(join(other, "sessions.db"), join(directory, "backup"))
        yield* using(
          directory,
          Effect.gen(function* () {
            yield* begin
            for (let i = 0; i < 5; i++) yield* append(i, "old")
            expect(yield* texts).toHaveLength(5)
            renameSync(file, `${file}.old`)
            renameSync(join(directory, "backup"), file)
            expect(yield* outcome(append(5, "lost"))).toBe("StoreUnavailable")
            yield* eventually(append(1, "new"))
            expect(yield* texts).toEqual(["theirs", "new"])
            expect(yield* outcome(append(5, "lost"))).toBe("OutOfStep")
          })
        )
        expect(isWhole(file)).toBe(true)
        expect(isWhole(`${file}.old`)).toBe(true)
      })
    )

    it.scopedLive("another file in its place is unchanged", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const file = join(directory, "sessions.db")
        yield* using(
          directory,
          Effect.gen(function* () {
            yield* begin
            yield* append(0, "1")
            renameSync(file, `${file}.away`)
            writeFileSync(file, "not a database\n".repeat(1000))
            const before = readFileSync(file)
            for (let i = 0; i < 3; i++) expect(yield* outcome(append(1, "lost"))).toBe("StoreUnavailable")
            expect(readFileSync(file).equals(before)).toBe(true)
            renameSync(`${file}.away`, file)
            yield* eventually(append(1, "2"))
            expect(yield* texts).toEqual(["1", "2"])
          })
        )
      })
    )

    it.scopedLive("a process that lost the lock does not write until the other one has ended", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        yield* using(
          directory,
          Effect.gen(function* () {
            yield* begin
            yield* append(0, "1")
            unlinkSync(join(directory, "sessions.lock"))
            const scope = yield* Scope.make()
            const theirs = yield* Layer.buildWithScope(Sqlite.layer({ directory, writer: "inline" }), scope)
            yield* Effect.provide(append(1, "theirs"), theirs)
            for (let i = 0; i < 3; i++) expect(yield* outcome(append(2, "mine"))).toBe("StoreUnavailable")
            yield* Scope.close(scope, Exit.void)
            const { headSeq } = Option.getOrThrow(yield* Effect.flatMap(SessionEvents, events => events.find("t/s")))
            yield* eventually(append(headSeq, "last"))
            const all = yield* texts
            expect(all.slice(0, 2)).toEqual(["1", "theirs"])
            // What was under way as the loss was noticed may be there, and nothing after it.
            expect(all.filter(text => text === "mine").length).toBeLessThanOrEqual(1)
            expect(all.at(-1)).toBe("last")
          })
        )
      })
    )
  })
}
