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
  writeFileSync,
  writeSync
} from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect, FastCheck as fc } from "effect"
import { decode } from "../../../../src/Kv/Change.ts"
import { ChangeLog } from "../../../../src/Kv/ChangeLog.ts"
import * as Owner from "../../../faults/Owner.ts"
import { times } from "../../../Scale.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"
import { test } from "../../../Tests.ts"
import { backUp, epoch, epochIn, eventually, recordIn, setup, using, write } from "../../SqliteFixture.ts"

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
    yield* using(
      directory,
      Effect.gen(function* () {
        renameSync(file, `${file}.away`)
        expect((yield* Effect.flip(write("lost")))._tag).toBe("StoreUnavailable")
        renameSync(`${file}.away`, file)
        yield* eventually(write("d"))
        expect(yield* epoch).toBe(first)
      })
    )
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
                  using(
                    directory,
                    Effect.gen(function* () {
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
                  )
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
