/** When the log of a database gets another epoch, and what its readers receive then. */
import { copyFileSync, cpSync, renameSync, rmSync, unlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Duration, Effect, Fiber, Layer } from "effect"
import * as DrainingSignal from "../../../../src/Http/DrainingSignal.ts"
import * as ChangeFeed from "../../../../src/Kv/ChangeFeed.ts"
import { ChangeLog } from "../../../../src/Kv/ChangeLog.ts"
import { Store } from "../../../../src/Kv/Store.ts"
import * as Memory from "../../../../src/Storage/Memory.ts"
import * as Sqlite from "../../../../src/Storage/Sqlite.ts"
import * as Owner from "../../../faults/Owner.ts"
import { test } from "../../../Tests.ts"
import { backUp, epoch, epochIn, eventually, quiet, recordIn, setup, using, write } from "../../SqliteFixture.ts"

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
      const second = yield* using(
        directory,
        Effect.gen(function* () {
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
        }),
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
    yield* using(
      directory,
      Effect.gen(function* () {
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
    )
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
