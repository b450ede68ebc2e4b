/** Databases whose files are moved, replaced or taken away under the running process. */
import { copyFileSync, existsSync, readFileSync, renameSync, unlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect, type Layer, type Scope } from "effect"
import { SessionEvents } from "../../../../src/Gateway/SessionEvents.ts"
import { ChangeLog } from "../../../../src/Kv/ChangeLog.ts"
import { decode } from "../../../../src/Kv/Entry.ts"
import { Store } from "../../../../src/Kv/Store.ts"
import * as Files from "../../../../src/Storage/Sqlite/Database/Files.ts"
import * as SqliteEvents from "../../../../src/Storage/Sqlite/SessionEvents.ts"
import * as Sqlite from "../../../../src/Storage/Sqlite.ts"
import { isLong } from "../../../Scale.ts"
import { put } from "../../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"
import { eventually, quiet } from "../../SqliteFixture.ts"

type Attempt<A, R> = Effect.Effect<A, { readonly _tag: string }, R>

/** A database to which texts are added, and from which they are read in that order. */
interface Subject<R> {
  /** Its file without `.db`. */
  readonly name: string
  /** The table with a row for each text. */
  readonly table: string
  readonly layer: (options: Sqlite.Options) => Layer.Layer<R, unknown>
  readonly begin: Attempt<unknown, R>
  readonly write: (text: string) => Attempt<unknown, R>
  readonly texts: Attempt<ReadonlyArray<string>, R>
  /** What else fails while the file is missing. */
  readonly others: ReadonlyArray<Attempt<unknown, R>>
  readonly expectReady: (isReady: boolean) => Effect.Effect<void, never, R>
}

it.scoped("the log of a replaced database is set aside, and that of one that is still there is not", () =>
  Effect.gen(function* () {
    const file = join(yield* temporaryDirectory, "kv.db")
    for (const name of [file, `${file}-wal`, `${file}.next`]) writeFileSync(name, name)
    const identity = Files.identify(file)
    Files.setAsideLog(file, identity)
    expect(existsSync(`${file}-wal.orphan`)).toBe(false)
    renameSync(`${file}.next`, file)
    Files.setAsideLog(file, identity)
    expect([existsSync(`${file}-wal`), existsSync(`${file}-wal.orphan`)]).toEqual([false, true])
  })
)

let keys = 1000

const kv: Subject<Store | ChangeLog> = {
  name: "kv",
  table: "changes",
  layer: Sqlite.layer,
  begin: Effect.void,
  write: text => put("n", `k${keys++}`, text),
  texts: Effect.map(
    Effect.flatMap(Store, store => store.list({ namespace: "n", prefix: "", after: "", limit: 100 })),
    ({ entries }) => entries.map(entry => JSON.parse(decode(entry).value))
  ),
  others: [
    Effect.scoped(Effect.flatMap(Store, store => store.listAll({ namespace: "n", prefix: "" }))),
    Effect.flatMap(ChangeLog, log => log.expire)
  ],
  // A finding is shared for a second.
  expectReady: isReady =>
    Effect.repeat(
      Effect.flatMap(Store, store => store.ready),
      { until: ready => ready === isReady }
    )
}

const append = (after: number, text: string) =>
  Effect.flatMap(SessionEvents, events =>
    events.append({ session: "t/s", epoch: "e", after, timestamp: 1, texts: [text], recoveryState: null })
  )

let head = 0

const sessions: Subject<SessionEvents> = {
  name: "sessions",
  table: "events",
  layer: SqliteEvents.layer,
  // Only this starts the writer's thread, which may take long.
  begin: Effect.suspend(() => eventually(Effect.flatMap(SessionEvents, events => events.open("t/s", "e")))),
  write: text =>
    Effect.suspend(() => append(head, text)).pipe(
      Effect.tap(() => {
        head++
      }),
      // It is another history by now, or has a text that was not acknowledged.
      Effect.tapErrorTag("OutOfStep", ({ headSeq }) =>
        Effect.sync(() => {
          head = headSeq ?? 0
        })
      ),
      Effect.retry({ times: 1, while: ({ _tag }) => _tag === "OutOfStep" })
    ),
  texts: Effect.flatMap(SessionEvents, events => Effect.flatten(events.read("t/s", 0, 100))).pipe(
    Effect.map(({ events }) => events.map(({ text }) => text))
  ),
  others: [],
  expectReady: () => Effect.void
}

/** What an attempt comes to: `ok`, or the tag of its error. */
const outcome = <A, R>(attempt: Attempt<A, R>) =>
  Effect.match(attempt, { onFailure: error => error._tag, onSuccess: () => "ok" })

const suite = <R>(subject: Subject<R>, writer: "inline" | "thread") => {
  const { begin, expectReady, layer, name, others, table, texts, write } = subject

  /** Whether a database is whole, and how many texts were added to it. */
  const inspect = (file: string) => {
    const db = new Database(file, { readonly: true })
    const integrity = db.pragma("integrity_check", { simple: true })
    const records = db.prepare(`SELECT count(*) FROM ${table}`).pluck().get()
    db.close()
    return { integrity, records }
  }

  const using = <A, E>(directory: string, body: Effect.Effect<A, E, R | Scope.Scope>) =>
    Effect.zipRight(begin, body).pipe(Effect.provide(layer({ directory, writer })), Effect.provide(quiet))

  /** Runs a test in an open database, with its file and directory. */
  const test = <A, E>(
    name: string,
    body: (file: string, directory: string) => Effect.Effect<A, E, R | Scope.Scope>,
    after: (file: string) => void = () => {}
  ) =>
    it.scopedLive(name, () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        const file = join(directory, `${subject.name}.db`)
        yield* using(directory, body(file, directory))
        after(file)
      })
    )

  describe(`the files of ${name}.db, written ${writer}`, () => {
    test(
      "no write is acknowledged while the database is missing, and writes continue when it is back",
      file =>
        Effect.gen(function* () {
          yield* write("1")
          renameSync(file, `${file}.away`)
          for (const attempt of [write("lost"), write("lost"), texts, ...others]) {
            expect(yield* outcome<unknown, R>(attempt)).toBe("StoreUnavailable")
          }
          yield* expectReady(false)
          expect(existsSync(file)).toBe(false)
          renameSync(`${file}.away`, file)
          yield* expectReady(true)
          yield* write("2")
          expect(yield* texts).toEqual(["1", "2"])
        }),
      file => expect(inspect(file)).toEqual({ integrity: "ok", records: 2 })
    )

    test("nothing is read while the database is missing, and reads alone find it when it is back", file =>
      Effect.gen(function* () {
        yield* write("1")
        expect(yield* texts).toEqual(["1"])
        renameSync(file, `${file}.away`)
        expect(yield* outcome(write("lost"))).toBe("StoreUnavailable")
        for (let i = 0; i < 3; i++) expect(yield* outcome(texts)).toBe("StoreUnavailable")
        renameSync(`${file}.away`, file)
        expect(yield* eventually(texts)).toEqual(["1"])
      }))

    test(
      "it continues with a backup in its place, and the old database is whole",
      (file, directory) =>
        Effect.gen(function* () {
          const other = yield* temporaryDirectory
          yield* using(other, write("backup"))
          copyFileSync(join(other, `${name}.db`), join(directory, "backup"))
          for (let index = 0; index < 5; index++) yield* write("old")
          expect(yield* texts).toHaveLength(5)
          renameSync(file, `${file}.old`)
          renameSync(join(directory, "backup"), file)
          expect(yield* outcome(write("lost"))).toBe("StoreUnavailable")
          yield* eventually(write("new"))
          expect(yield* texts).toEqual(["backup", "new"])
          yield* expectReady(true)
        }),
      file => {
        expect(inspect(file)).toEqual({ integrity: "ok", records: 2 })
        expect(inspect(`${file}.old`)).toEqual({ integrity: "ok", records: 5 })
      }
    )

    test(
      "another file in its place is unchanged",
      file =>
        Effect.gen(function* () {
          yield* write("1")
          renameSync(file, `${file}.away`)
          writeFileSync(file, "not a database\n".repeat(1000))
          const before = readFileSync(file)
          for (let attempt = 0; attempt < 3; attempt++) {
            expect(yield* outcome(write("lost"))).toBe("StoreUnavailable")
            expect(yield* outcome(texts)).toBe("StoreUnavailable")
            yield* expectReady(false)
          }
          expect(readFileSync(file).equals(before)).toBe(true)
          renameSync(`${file}.away`, file)
          yield* eventually(write("2"))
          expect(yield* texts).toEqual(["1", "2"])
        }),
      file => expect(inspect(file)).toEqual({ integrity: "ok", records: 2 })
    )

    test(
      "no acknowledged write is lost with the name of the write-ahead log",
      file =>
        Effect.gen(function* () {
          yield* write("1")
          unlinkSync(`${file}-wal`)
          expect(yield* outcome(write("lost"))).toBe("StoreUnavailable")
          yield* eventually(write("2"))
          expect(yield* texts).toEqual(["1", "2"])
        }),
      file => expect(inspect(file)).toEqual({ integrity: "ok", records: 2 })
    )

    it.scopedLive("reads are served from the start while another program locks the file, and writes after that", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        yield* using(directory, write("1"))
        const other = new Database(join(directory, `${name}.db`))
        other.exec("BEGIN IMMEDIATE")
        yield* Effect.gen(function* () {
          expect(yield* texts).toEqual(["1"])
          other.close()
          yield* begin
          yield* eventually(write("2"))
          expect(yield* texts).toEqual(["1", "2"])
        }).pipe(Effect.provide(layer({ directory, writer })), Effect.provide(quiet))
      })
    )

    test(
      "all is in the one file once it is closed",
      () => Effect.zipRight(write("1"), texts),
      file => {
        expect(existsSync(`${file}-wal`)).toBe(false)
        expect(inspect(file)).toEqual({ integrity: "ok", records: 1 })
      }
    )
  })
}

// Both databases have the same writer, which the longer runs have with each of them.
suite(kv, "thread")
suite(sessions, "inline")
if (isLong) {
  suite(kv, "inline")
  suite(sessions, "thread")
}
