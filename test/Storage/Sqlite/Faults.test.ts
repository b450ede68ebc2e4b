import { cpSync, existsSync, renameSync, rmSync, statSync } from "node:fs"
import { join } from "node:path"
import { describe, expect } from "@effect/vitest"
import Database from "better-sqlite3"
import { Cause, Effect, Exit, Logger, Option } from "effect"
import { Store } from "../../../src/Kv/Store.ts"
import type { Write } from "../../../src/Kv/Write.ts"
import { Writer } from "../../../src/Storage/Sqlite/Database/Writer.ts"
import type { Reply } from "../../../src/Storage/Sqlite/Database/WriterPort.ts"
import { type Outcome, writer as plugin } from "../../../src/Storage/Sqlite/Kv/Tables.ts"
import * as Sqlite from "../../../src/Storage/Sqlite.ts"
import * as Disk from "../../faults/Disk.ts"
import * as Owner from "../../faults/Owner.ts"
import * as Command from "../../service/Command.ts"
import { serve } from "../../service/InProcess.ts"
import { get, lastSeq, put, set } from "../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { test } from "../../Tests.ts"

const setup = Effect.gen(function* () {
  const directory = yield* temporaryDirectory
  const disk = yield* Disk.make(directory)
  const owner = yield* Owner.start(directory, { env: disk.env })
  expect(owner.opened).toEqual({ ok: "open" })
  const acknowledged = new Map<string, string>()
  /** Sets a key, and notes whether that was acknowledged. */
  const set = (key: string, value = key) =>
    Effect.map(owner.ask({ do: "set", key, value }), answer => {
      if ("ok" in answer) acknowledged.set(key, value)
      return "ok" in answer ? "ok" : `${answer.error}: ${answer.reason}`
    })
  return { directory, disk, owner, acknowledged, set }
})

/** Opens the store on a healthy disk, and compares it with the acknowledged writes. */
const verify = (directory: string, acknowledged: ReadonlyMap<string, string>) =>
  Effect.gen(function* () {
    yield* Effect.gen(function* () {
      const store = yield* Store
      for (const [key, value] of acknowledged) {
        const entry = Option.getOrThrow(yield* store.get("n", key))
        expect(JSON.parse(entry.value)).toBe(value)
      }
    }).pipe(Effect.provide(Sqlite.layer({ directory, writer: "inline" })), Effect.scoped)
    const db = new Database(join(directory, "kv.db"), { readonly: true })
    expect(db.pragma("integrity_check", { simple: true })).toBe("ok")
    // Dense from 1 on: nothing that was refused has left a hole.
    expect(db.prepare("SELECT max(seq) - count(*) FROM changes").pluck().get()).toBe(0)
    db.close()
  })

describe.skipIf(!Disk.isPossible)("disk faults (they take Linux and a C compiler named cc)", () => {
  test.scopedLive(
    "a full disk or a failed flush fails writes; reads continue; writes continue once the disk works; a process that dies before loses nothing",
    function* () {
      const { directory, disk, owner, acknowledged, set } = yield* setup
      expect(yield* set("a")).toBe("ok")
      yield* disk.fail("full")
      for (let attempt = 0; attempt < 3; attempt++) {
        expect(yield* set("a", "lost")).toMatch(/^StoreUnavailable: SQLITE_FULL/)
        expect(yield* owner.ask({ do: "get", key: "a" })).toEqual({ ok: "a" })
      }
      const isReady = owner.ask({ do: "ready" })
      expect(yield* isReady).toEqual({ ok: false })
      // A write that changes nothing does not show that the disk can be written.
      expect(yield* owner.ask({ do: "deleteAbsent" })).toEqual({ ok: [{ op: "delete", deleted: false }] })
      expect(yield* isReady).toEqual({ ok: false })
      yield* disk.heal
      expect(yield* set("b")).toBe("ok")
      // One finding serves all callers of a second.
      yield* Effect.repeat(isReady, { until: answer => "ok" in answer && answer.ok === true })
      expect(yield* owner.ask({ do: "lastSeq" })).toEqual({ ok: 2 })

      for (const key of ["a", "b", "c"]) expect(yield* set(key)).toBe("ok")
      const logBytes = () => statSync(join(directory, "kv.db-wal")).size
      for (const [round, fault] of (["flush", "full"] as const).entries()) {
        const before = logBytes()
        yield* disk.fail(fault)
        for (let attempt = 0; attempt < 3; attempt++) {
          expect(yield* set("a", `lost ${round}`)).toMatch(
            fault === "flush" ? /^StoreUnavailable: SQLITE_IOERR/ : /^StoreUnavailable: SQLITE_FULL/
          )
          expect(yield* owner.ask({ do: "get", key: "a" })).toEqual({ ok: "a" })
          expect(yield* owner.ask({ do: "ready" })).toEqual({ ok: false })
        }
        yield* disk.heal
        expect(yield* set(`after ${round}`)).toBe("ok")
        // The log may have lost frames: nothing is acknowledged before it was copied into the database.
        if (fault === "flush") expect(logBytes()).toBeLessThan(before)
        expect(yield* owner.ask({ do: "ready" })).toEqual({ ok: true })
        // Large values, so that checkpoints come in between.
        for (let index = 0; index < 8; index++) {
          expect(yield* set(`more ${round}-${index}`, "x".repeat(300_000))).toBe("ok")
        }
      }
      yield* disk.fail("flush")
      for (const key of acknowledged.keys()) expect(yield* set(key, "lost")).not.toBe("ok")
      yield* owner.kill("SIGKILL")
      yield* verify(directory, acknowledged)
    }
  )

  test.scopedLive("failed reads are reported, also in one turn with others, and succeed later", function* () {
    const { disk, owner, set } = yield* setup
    const keys = Array.from({ length: 40 }, (_, index) => `k${index}`)
    // Of 40 kB each, so that values are on separate pages, and not all in memory.
    const value = (key: string) => `${key} ${"x".repeat(40_000)}`
    for (const key of keys) expect(yield* set(key, value(key))).toBe("ok")
    yield* owner.end
    const directory = disk.env.FAULT_DIRECTORY!
    const again = yield* Owner.start(directory, { env: disk.env })
    expect(yield* again.ask({ do: "get", key: "k0" })).toEqual({ ok: value("k0") })
    for (const file of ["kv.db", "*"]) {
      for (let round = 0; round < 3; round++) {
        yield* disk.set([{ call: "read", outcome: "EIO", file, skip: round }])
        const answer = yield* again.ask({ do: "getAll", keys })
        const answers = "ok" in answer ? (answer.ok as ReadonlyArray<string>) : []
        expect(answers).toContain("StoreUnavailable")
        expect(answers.every((got, index) => got === "StoreUnavailable" || got === value(keys[index]!))).toBe(true)
        yield* disk.heal
        expect(yield* again.ask({ do: "getAll", keys: ["k39", "k1"] })).toEqual({ ok: [value("k39"), value("k1")] })
        yield* disk.set([{ call: "read", outcome: "EIO", file, skip: 20 }])
        expect(yield* again.ask({ do: "list" })).toMatchObject({ error: "StoreUnavailable" })
        yield* disk.heal
        expect(yield* again.ask({ do: "list" })).toEqual({ ok: keys.length })
        expect(yield* again.ask({ do: "set", key: "k5", value: value("k5") })).toHaveProperty("ok")
        expect(yield* again.ask({ do: "ready" })).toEqual({ ok: true })
      }
    }
  })

  for (const writer of ["thread", "inline"] as const) {
    test.scopedLive(`files that cannot be stat'ed fail writes until they can (${writer})`, function* () {
      const directory = yield* temporaryDirectory
      const disk = yield* Disk.make(directory)
      const owner = yield* Owner.start(directory, { env: disk.env, writer })
      expect(yield* owner.ask({ do: "set", key: "a", value: "a" })).toEqual({ ok: 1 })
      for (const file of ["kv.lock", "kv.db", "kv.db-wal", "*"]) {
        for (const outcome of ["EACCES", "EIO", "ESTALE"] as const) {
          yield* disk.set([{ call: "stat", outcome, file }])
          for (let attempt = 0; attempt < 2; attempt++) {
            const answer = yield* owner.ask({ do: "set", key: "a", value: "lost" })
            expect([file, outcome, answer]).toMatchObject([file, outcome, { error: "StoreUnavailable" }])
            expect(yield* owner.ask({ do: "ready" })).toEqual({ ok: false })
          }
          yield* disk.heal
          expect(yield* owner.ask({ do: "set", key: "a", value: outcome })).toHaveProperty("ok")
          expect(yield* owner.ask({ do: "get", key: "a" })).toEqual({ ok: outcome })
          expect(yield* owner.ask({ do: "ready" })).toEqual({ ok: true })
        }
      }
    })
  }

  for (const [how, signal] of [
    ["ended in peace", undefined],
    ["was killed", "SIGKILL"]
  ] as const) {
    test.scopedLive(
      `the store opens on a full disk after a process that ${how}, and is written once there is room`,
      function* () {
        const { directory, disk, owner, acknowledged, set } = yield* setup
        for (const key of ["a", "b", "c"]) expect(yield* set(key)).toBe("ok")
        yield* signal === undefined ? owner.end : owner.kill(signal)
        // The first process that opens the log creates its index again.
        rmSync(join(directory, "kv.db-shm"), { force: true })
        yield* disk.fail("full")
        const next = yield* Owner.start(directory, { env: disk.env })
        expect(next.opened).toEqual({ ok: "open" })
        for (let attempt = 0; attempt < 2; attempt++) {
          expect(yield* next.ask({ do: "getAll", keys: ["a", "b", "c"] })).toEqual({ ok: ["a", "b", "c"] })
          expect(yield* next.ask({ do: "list" })).toEqual({ ok: 3 })
          expect(yield* next.ask({ do: "lastSeq" })).toEqual({ ok: 3 })
          expect(yield* next.ask({ do: "set", key: "a", value: "lost" })).toMatchObject({ error: "StoreUnavailable" })
          expect(yield* next.ask({ do: "ready" })).toEqual({ ok: false })
        }
        yield* disk.heal
        expect(yield* next.ask({ do: "set", key: "d", value: "d" })).toEqual({ ok: 4 })
        acknowledged.set("d", "d")
        expect(yield* next.ask({ do: "list" })).toEqual({ ok: 4 })
        expect(yield* next.ask({ do: "ready" })).toEqual({ ok: true })
        // Other programs can read it, too.
        const db = new Database(join(directory, "kv.db"), { readonly: true })
        expect(db.prepare("SELECT count(*) FROM entries").pluck().get()).toBe(4)
        db.close()
        yield* next.kill("SIGKILL")
        yield* verify(directory, acknowledged)
      }
    )
  }

  test.scopedLive(
    "the service starts on a full disk without a session database, serves reads, and writes once there is room",
    function* () {
      const [directory, atWork] = [yield* temporaryDirectory, yield* temporaryDirectory]
      const disk = yield* Disk.make(directory)
      const env = { KV_API_KEY: "key" }
      const callOf = (url: string) => (method: string, body?: string) =>
        Effect.promise(async () => {
          const headers = { authorization: "Bearer key", "content-type": "application/json" }
          const init = { method, headers, ...(body === undefined ? {} : { body }) }
          return (await fetch(`${url}/api/v1/kv/n/k`, init)).status
        })
      yield* Effect.gen(function* () {
        const { url } = yield* serve({ ...env, DATA_DIR: directory })
        expect(yield* callOf(url)("PUT", '{"value":1}')).toBe(200)
        cpSync(directory, atWork, { recursive: true })
      }).pipe(Effect.scoped)
      // The files are again as a process leaves them that is killed.
      cpSync(atWork, directory, { recursive: true })
      for (const name of ["sessions.db", "sessions.lock"]) rmSync(join(directory, name), { force: true })
      yield* disk.fail("full")
      const service = yield* Command.launch({ ...env, DATA_DIR: directory, ...disk.env })
      const [, port] = yield* service.shows(/"port":(\d+)[,}]/)
      const call = callOf(`http://127.0.0.1:${port}`)
      expect(yield* call("GET")).toBe(200)
      expect(yield* call("PUT", '{"value":2}')).toBe(503)
      expect(yield* call("GET")).toBe(200)
      yield* disk.heal
      expect(yield* call("PUT", '{"value":2}')).toBe(200)
      yield* service.kill("SIGTERM")
      expect(yield* service.ended).toEqual({ code: 0, signal: null })
    }
  )
})

const write = (key: string): Write => ({ operations: [set("n", key, 1)], actor: "tester" })

/** A write that no caller can make by its type, so that the statements refuse to bind it. */
const broken: Write = { operations: [set("n", "broken", 1)], actor: JSON.parse("{}") }

const tags = (reply: Reply<Outcome>) => (reply._tag === "Done" ? reply.outcomes.map(({ _tag }) => _tag) : reply)

test.scoped("a commit into a file that loses its name in the meantime is not acknowledged", function* () {
  const directory = yield* temporaryDirectory
  yield* Effect.provide(lastSeq, Sqlite.layer({ directory, writer: "inline" }))
  const file = join(directory, "kv.db")
  const writer = new Writer(file, plugin(1_000_000))
  const moving: Write = {
    ...write("a"),
    get actor() {
      if (existsSync(file)) renameSync(file, `${file}.moved`)
      return "tester"
    }
  }
  expect(writer.handle({ kind: "commit", writes: [moving], now: 1000 })._tag).toBe("Unavailable")
  writer.handle({ kind: "close" })
})

describe("a defect in the writer", () => {
  test.scoped("fails its write alone, and the others of the group are committed", function* () {
    const directory = yield* temporaryDirectory
    yield* Effect.provide(lastSeq, Sqlite.layer({ directory, writer: "inline" }))
    const writer = new Writer(join(directory, "kv.db"), plugin(1_000_000))
    const commit = (...writes: ReadonlyArray<Write>) => writer.handle({ kind: "commit", writes, now: 1000 })
    expect(tags(commit(write("a"), broken, write("b")))).toEqual(["Committed", "Defect", "Committed"])
    expect(tags(commit(broken))).toEqual(["Defect"])
    expect(commit(write("c"))).toMatchObject({ _tag: "Done", lastSeq: 3 })
    writer.handle({ kind: "close" })
  })

  for (const mode of ["inline", "thread"] as const) {
    test.scopedLive(`reaches its caller as a defect, with its stack, written ${mode}`, function* () {
      const directory = yield* temporaryDirectory
      yield* Effect.gen(function* () {
        const store = yield* Store
        const [before, defect, after] = yield* Effect.all(
          [Effect.exit(put("n", "a", 1)), Effect.exit(store.commit(broken)), Effect.exit(put("n", "b", 1))],
          { concurrency: "unbounded" }
        )
        expect(Exit.isSuccess(before) && Exit.isSuccess(after)).toBe(true)
        expect(Exit.isFailure(defect) && Cause.pretty(defect.cause)).toMatch(/RangeError: .*\n\s+at /)
        expect(Exit.isFailure(defect) && Cause.isDie(defect.cause)).toBe(true)
        expect(Option.isNone(yield* get("n", "broken"))).toBe(true)
        yield* put("n", "c", 1)
        expect(yield* lastSeq).toBe(3)
      }).pipe(
        Effect.provide(Sqlite.layer({ directory, writer: mode })),
        Effect.provide(Logger.remove(Logger.defaultLogger))
      )
    })
  }
})
