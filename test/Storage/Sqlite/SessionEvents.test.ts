/** A session database that is partly damaged, or that cannot be written, and what it overwrites. */
import { chmodSync, chownSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect } from "@effect/vitest"
import Database from "better-sqlite3"
import { Duration, Effect } from "effect"
import { type Append, SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import { Writer } from "../../../src/Storage/Sqlite/Database/Writer.ts"
import { writer as plugin } from "../../../src/Storage/Sqlite/SessionEvents/Tables.ts"
import * as Sqlite from "../../../src/Storage/Sqlite/SessionEvents.ts"
import * as OtherUser from "../../faults/OtherUser.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { test } from "../../Tests.ts"
import { countedOf, listening } from "./DamageFixture.ts"

const retention = { events: 1000, bytes: 1024 * 1024 * 1024 }

const append = (session: string, after: number, ...texts: ReadonlyArray<string>): Append => ({
  ...{ session, epoch: "e", after, timestamp: 1, texts, recoveryState: null }
})

const marker = "PAGE-OF-THE-BROKEN-ONE."

/** Makes the pages that have the marked text refer to a missing page. Returns what they referred to before. */
const breakMarked = (file: string): ReadonlyArray<{ readonly page: number; readonly next: number }> => {
  const bytes = readFileSync(file)
  const pageSize = bytes.readUInt16BE(16)
  const broken: Array<{ page: number; next: number }> = []
  for (let page = 0; page < bytes.length; page += pageSize) {
    // Pages of a long text begin with the number of the next one.
    const start = bytes.subarray(page + 4, page + 4 + marker.length * 2)
    if (!start.toString("latin1").includes(marker)) continue
    broken.push({ page, next: bytes.readUInt32BE(page) })
    bytes.writeUInt32BE(0x7ffffff0, page)
  }
  expect(broken.length).toBeGreaterThan(3)
  writeFileSync(file, bytes)
  return broken
}

/** A database with the histories `t/broken` and `t/well`. The content of the first refers to a missing page. */
const damaged = Effect.gen(function* () {
  const directory = yield* temporaryDirectory
  const file = join(directory, "sessions.db")
  yield* Effect.gen(function* () {
    const events = yield* SessionEvents
    for (const session of ["t/well", "t/broken"]) yield* events.open(session, "e")
    yield* events.append(append("t/broken", 0, marker.repeat(2000)))
    for (let seq = 0; seq < 20; seq++) yield* events.append(append("t/well", seq, `event ${seq + 1}`))
  }).pipe(Effect.provide(Sqlite.layer({ directory, writer: "inline" })))
  breakMarked(file)
  return { directory, file }
})

const counted = countedOf("session")

describe("A damaged session database", () => {
  for (const writer of ["inline", "thread"] as const) {
    test.scopedLive(`is reported, and does not affect other sessions, written ${writer}`, function* () {
      const { directory } = yield* damaged
      const lines: Array<string> = []
      const before = yield* counted("read")
      yield* Effect.gen(function* () {
        const events = yield* SessionEvents
        for (let tries = 0; tries < 3; tries++) {
          expect(yield* Effect.flip(events.read("t/broken", 0, 10))).toMatchObject({
            _tag: "SessionUnreadable",
            session: "t/broken",
            reason: expect.stringMatching(/^SQLITE_CORRUPT/)
          })
        }
        expect((yield* Effect.flatten(events.read("t/well", 0, 100))).events).toHaveLength(20)
        // All of them at once, and so in one group or a few.
        const outcomes = yield* Effect.forEach(
          Array.from({ length: 20 }, (_, index) => index),
          index => Effect.either(index === 10 ? events.remove("t/broken") : events.open(`t/new-${index}`, "e")),
          { concurrency: "unbounded" }
        )
        expect(outcomes.map(({ _tag }) => _tag)).toEqual(outcomes.map((_, index) => (index === 10 ? "Left" : "Right")))
        yield* events.append(append("t/well", 20, "the next one"))
        expect((yield* Effect.flatten(events.read("t/well", 20, 100))).events).toEqual([
          { seq: 21, text: "the next one" }
        ])
      }).pipe(Effect.provide(Sqlite.layer({ directory, writer })), listening(lines))
      expect((yield* counted("read")) - before).toBe(3)
      // Once for a while, not each time.
      expect(lines).toEqual(["The session database is damaged"])
    })
  }

  test.scopedLive("of which a checkpoint is damaged is written and read otherwise", function* () {
    const directory = yield* temporaryDirectory
    const layer = Sqlite.layer({ directory, writer: "inline" })
    yield* Effect.gen(function* () {
      const events = yield* SessionEvents
      yield* events.open("t/s", "e")
      yield* events.append(append("t/s", 0, "1"))
      yield* events.saveCheckpoint("t/s", { epoch: "e", seq: 1, text: marker.repeat(2000) })
    }).pipe(Effect.provide(layer))
    breakMarked(join(directory, "sessions.db"))
    yield* Effect.gen(function* () {
      const events = yield* SessionEvents
      expect(yield* Effect.flip(events.checkpoint("t/s"))).toMatchObject({ _tag: "StoreUnavailable" })
      const outcomes = yield* Effect.forEach(
        [
          events.append(append("t/s", 1, "2")),
          events.saveCheckpoint("t/s", { epoch: "e", seq: 2, text: "{}" }),
          events.open("t/other", "e")
        ],
        Effect.either,
        { concurrency: "unbounded" }
      )
      expect([outcomes[0]?._tag, outcomes[2]?._tag]).toEqual(["Right", "Right"])
      expect((yield* Effect.flatten(events.read("t/s", 0, 100))).events.map(({ text }) => text)).toEqual(["1", "2"])
    }).pipe(Effect.provide(layer), listening([]))
  })

  test.scopedLive("does not prevent the removal of old readable events", function* () {
    const { directory } = yield* damaged
    yield* Effect.gen(function* () {
      const events = yield* SessionEvents
      expect(yield* events.trim(Duration.hours(1))).toBe(20)
      expect((yield* Effect.flatten(events.read("t/well", 0, 100))).events).toEqual([])
      expect(yield* Effect.flip(events.read("t/broken", 0, 100))).toMatchObject({ _tag: "SessionUnreadable" })
    }).pipe(Effect.provide(Sqlite.layer({ directory, writer: "inline" })), listening([]))
  })

  test.scopedLive("does not move the start of a history back when older events can be read again", function* () {
    const directory = yield* temporaryDirectory
    const file = join(directory, "sessions.db")
    const layer = Sqlite.layer({ directory, writer: "inline" })
    yield* Effect.gen(function* () {
      const events = yield* SessionEvents
      yield* events.open("t/s", "e")
      yield* events.append(append("t/s", 0, marker.repeat(2000), "2", "3", "4", "5"))
      yield* events.append({ ...append("t/s", 5, "6"), timestamp: Date.now() })
    }).pipe(Effect.provide(layer))
    const intact = breakMarked(file)
    const trim = Effect.gen(function* () {
      const events = yield* SessionEvents
      const count = yield* events.trim(Duration.hours(1))
      const { events: left, history } = yield* Effect.flatten(events.read("t/s", 0, 100))
      return { count, seqs: left.map(({ seq }) => seq), trimmedSeq: history.trimmedSeq }
    }).pipe(Effect.provide(layer), listening([]))
    expect(yield* trim).toEqual({ count: 4, seqs: [6], trimmedSeq: 5 })
    const bytes = readFileSync(file)
    for (const { next, page } of intact) bytes.writeUInt32BE(next, page)
    writeFileSync(file, bytes)
    expect(yield* trim).toEqual({ count: 1, seqs: [6], trimmedSeq: 5 })
  })

  test.scoped("does not fail the other writes of a group", function* () {
    const { file } = yield* damaged
    const writer = new Writer(file, plugin(retention))
    const tags = (writes: ReadonlyArray<Append | { readonly remove: string }>) => {
      const reply = writer.handle({
        kind: "commit",
        now: 1,
        writes: writes.map(write =>
          "remove" in write ? { op: "remove", session: write.remove } : { op: "append", ...write }
        )
      })
      return reply._tag === "Done" ? reply.outcomes.map(({ _tag }) => _tag) : reply
    }
    expect(tags([append("t/well", 20, "21"), { remove: "t/broken" }, append("t/well", 21, "22")])).toEqual([
      "Stored",
      "Failed",
      "Stored"
    ])
    writer.handle({ kind: "close" })
    const db = new Database(file, { readonly: true })
    const seqs = db
      .prepare("SELECT seq FROM events JOIN histories ON history = histories.id WHERE session = 't/well' ORDER BY seq")
      .pluck()
      .all()
    expect(seqs).toEqual(Array.from({ length: 22 }, (_, index) => index + 1))
    db.close()
  })
})

describe("A session database that cannot be written", () => {
  test.scopedLive("is refused with a reason", function* () {
    const directory = yield* temporaryDirectory
    const file = join(directory, "sessions.db")
    const start = Sqlite.make({ directory, writer: "inline" })
    yield* Effect.scoped(start)
    if (process.getuid?.() === 0) {
      for (const name of ["", ...readdirSync(directory)]) chownSync(join(directory, name), 65534, 65534)
    }
    yield* Effect.scoped(Effect.zipRight(OtherUser.become, start))
    chmodSync(file, 0o444)
    const refused = yield* Effect.flip(Effect.scoped(Effect.zipRight(OtherUser.become, start)))
    expect(refused.message).toMatch(/sessions\.db cannot be (written|opened for writing) \(/)
    // SQLite gives its other files the same mode.
    for (const name of readdirSync(directory)) chmodSync(join(directory, name), 0o600)
    yield* Effect.scoped(Effect.zipRight(OtherUser.become, start))
  })
})

const removed = "MARK-OF-WHAT-IS-REMOVED."

/** A launch configuration with the text everywhere, in one page or in many. */
const marked = (times: number) => ({ environment: removed.repeat(times), deployment: removed.repeat(times) })

describe("launch configurations in the session database", () => {
  test.scoped("leave nothing in the bytes of the file once they are replaced or removed", function* () {
    const directory = yield* temporaryDirectory
    const run = <A, E>(effect: Effect.Effect<A, E, SessionEvents>) =>
      Effect.provide(effect, Sqlite.layer({ directory, writer: "inline" }))
    const isMarked = () => readFileSync(join(directory, "sessions.db")).includes(removed)
    const sessions = ["t/replaced", "t/removed", "t/emptied"]
    yield* run(
      Effect.gen(function* () {
        const { configure } = yield* SessionEvents
        for (const session of sessions) {
          yield* configure(session, marked(3))
          yield* configure(`${session}-large`, marked(2000))
        }
      })
    )
    expect(isMarked()).toBe(true)
    yield* run(
      Effect.gen(function* () {
        const { configure, remove } = yield* SessionEvents
        for (const size of ["", "-large"]) {
          yield* configure(`t/replaced${size}`, { environment: "{}", deployment: null })
          yield* configure(`t/emptied${size}`, { environment: null, deployment: null })
          yield* remove(`t/removed${size}`)
        }
      })
    )
    expect(isMarked()).toBe(false)
  })
})
