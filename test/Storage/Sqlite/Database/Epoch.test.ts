/** The epoch of the log in a database that is restarted, killed, moved and damaged. */

import {
  closeSync,
  copyFileSync,
  cpSync,
  existsSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  unlinkSync,
  writeFileSync,
  writeSync
} from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Duration, Effect, Fiber, FastCheck as fc, Layer } from "effect"
import * as DrainingSignal from "../../../../src/Http/DrainingSignal.ts"
import { decode } from "../../../../src/Kv/Change.ts"
import * as ChangeFeed from "../../../../src/Kv/ChangeFeed.ts"
import { ChangeLog } from "../../../../src/Kv/ChangeLog.ts"
import { Store } from "../../../../src/Kv/Store.ts"
import * as Memory from "../../../../src/Storage/Memory.ts"
import * as Sqlite from "../../../../src/Storage/Sqlite.ts"
import * as Owner from "../../../faults/Owner.ts"
import { times } from "../../../Scale.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"
import { test } from "../../../Tests.ts"
import {
  backUp,
  during,
  epoch,
  epochIn,
  eventually,
  quiet,
  recordIn,
  setup,
  using,
  write
} from "../../SqliteFixture.ts"

const setRecordedSeq = (directory: string, seq: number) =>
  writeFileSync(
    join(directory, "kv.epoch"),
    recordIn(directory).replace(/lastSeq \d+/, `lastSeq ${String(seq).padStart(16, "0")}`)
  )

describe("the epoch of the log stays", () => {
  for (const writer of ["inline", "thread"] as const) {
    test.scopedLive(`when the process is killed (${writer})`, function* () {
      const { directory, first } = yield* setup
      const owner = yield* Owner.start(directory, { writer })
      for (const key of ["x", "y"]) expect(yield* owner.ask({ do: "set", key, value: key })).toHaveProperty("ok")
      yield* owner.kill("SIGKILL")
      expect(recordIn(directory)).toContain("lastSeq 0000000000000005")
      expect(yield* epochIn(directory)).toBe(first)
    })
  }

  test.scoped("when the process ended between a commit and its record", function* () {
    const { directory, first } = yield* setup
    setRecordedSeq(directory, 2)
    expect(yield* epochIn(directory)).toBe(first)
    expect(recordIn(directory)).toContain("lastSeq 0000000000000003")
  })

  test.scopedLive("when the database is moved away and back under the running process", function* () {
    const { directory, file, first } = yield* setup
    yield* during(directory, function* () {
      renameSync(file, `${file}.away`)
      expect((yield* Effect.flip(write("lost")))._tag).toBe("StoreUnavailable")
      renameSync(`${file}.away`, file)
      yield* eventually(write("d"))
      expect(yield* epoch).toBe(first)
    })
    expect(yield* epochIn(directory)).toBe(first)
  })

  test.scoped("when the process was killed in a transaction with a rollback journal", function* () {
    const { directory, file, first } = yield* setup
    const db = new Database(file)
    // So little memory that pages are written before the transaction ends, which leaves a journal to roll back.
    db.pragma("cache_size = 1")
    db.pragma("cache_spill = 1")
    db.exec("BEGIN; CREATE TABLE filler (x)")
    for (let index = 0; index < 100; index++) db.exec("INSERT INTO filler VALUES (zeroblob(4000))")
    for (const name of ["kv.db", "kv.db-journal"]) copyFileSync(join(directory, name), join(directory, `${name}.copy`))
    db.exec("ROLLBACK")
    db.close()
    const descriptor = openSync(file, "r+")
    writeSync(descriptor, readFileSync(`${file}.copy`))
    closeSync(descriptor)
    renameSync(`${file}-journal.copy`, `${file}-journal`)
    expect(yield* epochIn(directory)).toBe(first)
  })

  test.scoped("if the page that has it is damaged", function* () {
    const { directory, file, first } = yield* setup
    const db = new Database(file, { readonly: true })
    const page = db.prepare("SELECT rootpage FROM sqlite_schema WHERE name = 'metadata'").pluck().get() as number
    db.close()
    const descriptor = openSync(file, "r+")
    writeSync(descriptor, Buffer.alloc(4096, 0xff), 0, 4096, (page - 1) * 4096)
    closeSync(descriptor)
    expect(yield* using(directory, Effect.zipRight(write("d"), epoch))).toBe(first)
  })
})

/** What is done with a store, one after the other. */
type Step = "write" | "restart" | "backUp" | "copyBack" | "moveBack" | "removeRecord" | "copyDirectory"

const steps: ReadonlyArray<Step> = [
  "write",
  "restart",
  "backUp",
  "copyBack",
  "moveBack",
  "removeRecord",
  "copyDirectory"
]

describe("positions of one epoch", () => {
  it.effect("always identify the same changes, whatever is backed up and restored", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(fc.array(fc.constantFrom(...steps), { minLength: 4, maxLength: 16 }), all =>
          Effect.runPromise(
            Effect.scoped(
              Effect.gen(function* () {
                const directory = yield* temporaryDirectory
                const file = join(directory, "kv.db")
                const backup = join(yield* temporaryDirectory, "backup.db")
                /** The value of each change by its epoch and its `seq`. */
                const known = new Map<string, string | null>()
                let count = 0
                const visit = (step: Step) =>
                  during(directory, function* () {
                    if (step === "write") yield* write(`k${count++}`)
                    if (step === "backUp") yield* backUp(directory, backup)
                    const log = yield* ChangeLog
                    const page = yield* log.read({ after: 0, limit: 1000, tenant: "" })
                    for (const { key, seq } of page.changes.map(decode)) {
                      const position = `${page.epoch} ${seq}`
                      if (known.has(position)) expect(known.get(position)).toBe(key)
                      known.set(position, key)
                    }
                  })
                yield* visit("write")
                for (const step of all) {
                  if (step === "copyBack" && existsSync(backup)) copyFileSync(backup, file)
                  if (step === "moveBack" && existsSync(backup)) renameSync(backup, file)
                  if (step === "removeRecord") rmSync(join(directory, "kv.epoch"))
                  if (step === "copyDirectory") {
                    cpSync(directory, `${directory}.copy`, { recursive: true })
                    rmSync(directory, { recursive: true })
                    renameSync(`${directory}.copy`, directory)
                  }
                  yield* visit(step)
                }
              })
            )
          )
        ),
        { numRuns: times(15) }
      )
    )
  )
})

const edit = (directory: string, sql: string) => {
  const db = new Database(join(directory, "kv.db"))
  db.exec(sql)
  db.close()
}

describe("the epoch of the log is another one", () => {
  test.effect("for each store in memory", function* () {
    const [one, other] = yield* Effect.replicateEffect(Effect.provide(epoch, Layer.fresh(Memory.layer)), 2)
    expect(one).not.toBe(other)
  })

  /** What is done to a closed store, or to one whose process was killed. */
  const changes: Readonly<Record<string, (paths: { directory: string; file: string; backup: string }) => void>> = {
    "a backup is copied over the database": ({ backup, file }) => copyFileSync(backup, file),
    "a backup is moved into its place": ({ backup, file }) => renameSync(backup, file),
    "the database is removed, and a backup copied": ({ backup, file }) => {
      unlinkSync(file)
      copyFileSync(backup, file)
    },
    "the database is removed": ({ file }) => unlinkSync(file),
    "a copy of the same state is moved into its place": ({ file }) => {
      copyFileSync(file, `${file}.copy`)
      renameSync(`${file}.copy`, file)
    },
    "the directory is restored as a whole": ({ directory }) => {
      cpSync(directory, `${directory}.copy`, { recursive: true, preserveTimestamps: true })
      rmSync(directory, { recursive: true })
      renameSync(`${directory}.copy`, directory)
    },
    "the record is missing": ({ directory }) => unlinkSync(join(directory, "kv.epoch")),
    "the record is empty": ({ directory }) => writeFileSync(join(directory, "kv.epoch"), ""),
    "the record is another store's": ({ directory }) =>
      writeFileSync(join(directory, "kv.epoch"), recordIn(directory).replace(/^epoch ./, "epoch x")),
    "the process ended between a new epoch and its record": ({ directory }) =>
      edit(directory, "UPDATE metadata SET value = 'half'"),
    "the log lacks the last change": ({ directory }) => edit(directory, "DELETE FROM changes WHERE seq = 3")
  }

  for (const [title, change] of Object.entries(changes)) {
    test.scoped(`if ${title}, and then it does not change`, function* () {
      const { backup, directory, file, first } = yield* setup
      change({ backup, directory, file })
      const second = yield* epochIn(directory)
      expect(second).toMatch(/^[0-9a-f]{16}$/)
      expect(second).not.toBe(first)
      expect(yield* using(directory, Effect.zipRight(write("d"), epoch))).toBe(second)
      expect(yield* epochIn(directory)).toBe(second)
    })
  }

  it.scopedLive.each([
    ["its write-ahead log is lost", false],
    ["a backup of this run was copied over the database", true]
  ] as const)("if the process was killed and %s", ([, isRestored]) =>
    Effect.gen(function* () {
      const { backup, directory, file, first } = yield* setup
      const owner = yield* Owner.start(directory)
      expect(yield* owner.ask({ do: "set", key: "x", value: "x" })).toHaveProperty("ok")
      if (isRestored) yield* backUp(directory, backup)
      expect(yield* owner.ask({ do: "set", key: "y", value: "y" })).toHaveProperty("ok")
      yield* owner.kill("SIGKILL")
      rmSync(`${file}-wal`)
      rmSync(`${file}-shm`)
      if (isRestored) copyFileSync(backup, file)
      expect(yield* epochIn(directory)).not.toBe(first)
    })
  )

  test.scoped("when it is renewed", function* () {
    const { directory, first } = yield* setup
    const second = yield* Sqlite.renewEpoch({ directory })
    expect(second).not.toBe(first)
    expect(yield* epochIn(directory)).toBe(second)
    expect((yield* using(directory, Effect.flip(Sqlite.renewEpoch({ directory })))).message).toContain("is locked")
    expect(yield* epochIn(directory)).toBe(second)
  })

  for (const writer of ["inline", "thread"] as const) {
    test.scopedLive(`when a backup is moved into the place of an open database (${writer})`, function* () {
      const { backup, directory, file, first } = yield* setup
      const second = yield* during(
        directory,
        function* () {
          const log = yield* ChangeLog
          const store = yield* Store
          expect(yield* epoch).toBe(first)
          renameSync(file, `${file}.old`)
          renameSync(backup, file)
          // The open connection reads the old file. A new connection must not read the new file yet.
          expect(yield* log.read({ after: 0, limit: 10, tenant: "" })).toMatchObject({ epoch: first, lastSeq: 3 })
          const whole = Effect.scoped(store.listAll({ namespace: "n", prefix: "" }))
          expect((yield* Effect.flip(whole))._tag).toBe("StoreUnavailable")
          const { epoch: second, lastSeq } = yield* eventually(whole)
          expect(second).not.toBe(first)
          expect(lastSeq).toBe(2)
          yield* eventually(write("d"))
          expect(yield* log.read({ after: 0, limit: 10, tenant: "" })).toMatchObject({ epoch: second, lastSeq: 3 })
          return second
        },
        writer
      )
      expect(yield* epochIn(directory)).toBe(second)
    })
  }
})

describe("a store whose log needs a new epoch", () => {
  test.scoped("is refused while no new epoch can be stored", function* () {
    const { backup, directory, file, first } = yield* setup
    copyFileSync(backup, file)
    edit(directory, "CREATE TRIGGER stop BEFORE INSERT ON metadata BEGIN SELECT RAISE(ABORT, 'stopped'); END")
    const error = yield* Effect.flip(epochIn(directory))
    expect(error).toMatchObject({ _tag: "StoreRefused", file })
    expect(error.message).toContain("needs a new epoch, which cannot be stored (stopped)")
    edit(directory, "DROP TRIGGER stop")
    expect(yield* epochIn(directory)).not.toBe(first)
  })

  test.scopedLive("is not read while no new epoch can be stored, if it has replaced an open database", function* () {
    const { backup, directory, file, first } = yield* setup
    yield* during(directory, function* () {
      const other = new Database(backup)
      other.exec("CREATE TRIGGER stop BEFORE INSERT ON metadata BEGIN SELECT RAISE(ABORT, 'stopped'); END")
      other.close()
      renameSync(file, `${file}.old`)
      renameSync(backup, file)
      for (let attempt = 0; attempt < 3; attempt++) {
        expect((yield* Effect.flip(write("lost")))._tag).toBe("StoreUnavailable")
        expect((yield* Effect.flip(epoch))._tag).toBe("StoreUnavailable")
      }
      edit(directory, "DROP TRIGGER stop")
      yield* eventually(write("d"))
      expect(yield* epoch).not.toBe(first)
    })
  })
})

describe("a follower of a log that is replaced", () => {
  test.scopedLive("is notified while it waits, if it knows the old one", function* () {
    const { backup, directory, file, first } = yield* setup
    const feed = ChangeFeed.layer.pipe(
      Layer.provideMerge(Layer.merge(Sqlite.layer({ directory, writer: "inline" }), DrainingSignal.layer)),
      Layer.merge(quiet)
    )
    yield* Effect.gen(function* () {
      const { followers, poll } = yield* ChangeFeed.ChangeFeed
      const query = { after: 3, limit: 10, tenant: "nobody" }
      const [knowing, other] = [
        yield* Effect.fork(Effect.flip(poll({ ...query, epoch: first }, Duration.minutes(1)))),
        yield* Effect.fork(poll({ ...query, tenant: "" }, Duration.minutes(1)))
      ]
      yield* Effect.repeat(Effect.zipRight(Effect.sleep("1 millis"), followers), { until: count => count === 2 })
      renameSync(file, `${file}.old`)
      renameSync(backup, file)
      yield* eventually(write("d"))
      yield* write("e")
      const second = yield* epoch
      expect(yield* Fiber.join(knowing)).toMatchObject({ _tag: "LogReplaced", epoch: second })
      expect(yield* Fiber.join(other)).toMatchObject({ epoch: second })
    }).pipe(Effect.provide(feed))
  })
})
