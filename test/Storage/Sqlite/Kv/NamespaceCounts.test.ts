/** The numbers of namespaces and tenants that a database of an earlier schema gets. */
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect, Exit, Fiber, Layer, Scope } from "effect"
import { fileOf } from "../../../../src/Storage/Sqlite/Database/Connection.ts"
import { migrate } from "../../../../src/Storage/Sqlite/Database/Migrations.ts"
import { format } from "../../../../src/Storage/Sqlite/Kv/Writer.ts"
import * as Sqlite from "../../../../src/Storage/Sqlite.ts"
import * as Disk from "../../../faults/Disk.ts"
import * as Owner from "../../../faults/Owner.ts"
import { isLong } from "../../../Scale.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"
import * as Numbers from "../../Numbers.ts"

const start = 1_700_000_000_000

const using = <A>(file: string, body: (db: Database.Database) => A): A => {
  const db = new Database(file)
  try {
    return body(db)
  } finally {
    db.close()
  }
}

/** A directory with a store as the version with this schema left it. */
const directoryAt = (schema: number) =>
  Effect.gen(function* () {
    const directory = yield* temporaryDirectory
    const { migrations } = yield* Effect.promise(format.load)
    const file = fileOf(directory, format)
    yield* migrate(file, format.applicationId, migrations.slice(0, schema))
    using(file, db => {
      db.pragma("journal_mode = WAL")
      const entry = db.prepare("INSERT INTO entries VALUES (?, ?, 1, 'tester', ?, ?, '1')")
      const tombstone = db.prepare("INSERT INTO tombstones VALUES (?, ?, 2, ?)")
      const change = db.prepare("INSERT INTO changes VALUES (?, ?, ?, ?, ?, 'tester', ?, '', ?)")
      let seq = 0
      db.transaction(() => {
        for (const { expiresAt, key, namespace } of Numbers.entries) {
          entry.run(namespace, key, start, expiresAt)
          change.run(++seq, "set", namespace, key, 1, start, "1")
        }
        for (const { key, namespace } of Numbers.tombstones) {
          tombstone.run(namespace, key, ++seq)
          change.run(seq, "delete", namespace, key, 2, start, null)
        }
        // As the writers of these versions did.
        if (format.migrationNames.slice(0, schema).includes("namespaces")) {
          const count = db.prepare("INSERT INTO namespaces VALUES (?, ?)")
          for (const row of Numbers.numbersOf(Numbers.entries).namespaces) count.run(...row)
        }
      })()
    })
    return directory
  })

const tablesOf = (directory: string): Numbers.Tables =>
  using(join(directory, "kv.db"), db => ({
    entries: db.prepare<[], { readonly namespace: string }>("SELECT namespace FROM entries").all(),
    namespaces: db.prepare<[], [string, number]>("SELECT namespace, entries FROM namespaces").raw().all(),
    tenants: db.prepare<[], [string, number, number]>("SELECT tenant, namespaces, entries FROM tenants").raw().all()
  }))

/** Expects a store to have all numbers, also after writes. */
const expectNumbers = (directory: string) =>
  Effect.gen(function* () {
    yield* Effect.zipRight(Numbers.expectShown, Numbers.change).pipe(
      Effect.provide(Layer.fresh(Sqlite.layer({ directory, writer: "inline" })))
    )
    Numbers.expectCounted(tablesOf(directory))
  })

/** A system call that changes the database on the disk. */
interface DiskCall {
  readonly call: Disk.Call
  readonly file: string
  /** How many calls of the kind there are before it on the file. */
  readonly skip: number
}

const changing = /^(write|flush|truncate|unlink) (.+)$/

/** The calls of a process that opens the store, in order. */
const callsOf = (directory: string) =>
  Effect.scoped(
    Effect.gen(function* () {
      const disk = yield* Disk.make(directory, true)
      const owner = yield* Owner.start(directory, { env: disk.env, writer: "inline" })
      expect(owner.opened).toEqual({ ok: "open" })
      const before = new Map<string, number>()
      return (yield* disk.recorded).flatMap((line): ReadonlyArray<DiskCall> => {
        const [, call, path] = changing.exec(line) ?? []
        if (call === undefined || path === undefined || !path.startsWith(`${directory}/kv.db`)) return []
        const skip = before.get(line) ?? 0
        before.set(line, skip + 1)
        return [{ call: call as Disk.Call, file: path.slice(directory.length + 1), skip }]
      })
    })
  )

/** Migrates the store in a process that is killed in the middle of a call. Returns whether it came so far. */
const killedAt = (directory: string, { call, file, skip }: DiskCall) =>
  Effect.scoped(
    Effect.gen(function* () {
      const disk = yield* Disk.make(directory)
      yield* disk.set([{ call, file, skip, times: 1, outcome: "hang" }])
      const scope = yield* Scope.make()
      const opening = yield* Effect.fork(
        Scope.extend(Owner.start(directory, { env: disk.env, writer: "inline" }), scope)
      )
      const isHanging = yield* Effect.raceFirst(
        Effect.as(
          Effect.repeat(Effect.zipRight(Effect.sleep("5 millis"), disk.injected), { until: calls => calls > 0 }),
          true
        ),
        Effect.as(Fiber.join(opening), false)
      )
      yield* Scope.close(scope, Exit.void)
      return isHanging
    })
  )

const schemaBefore = (migration: string): number => format.migrationNames.indexOf(migration)

describe("a store of an earlier schema", () => {
  for (const migration of ["namespaces", "tenants"]) {
    it.scopedLive(`has the numbers of its namespaces and tenants (before the migration ${migration})`, () =>
      Effect.gen(function* () {
        const directory = yield* directoryAt(schemaBefore(migration))
        yield* Effect.void.pipe(Effect.provide(Layer.fresh(Sqlite.layer({ directory, writer: "inline" }))))
        const tables = tablesOf(directory)
        expect({ namespaces: tables.namespaces.length, entries: tables.entries.length }).toEqual({
          namespaces: Numbers.numbersOf(Numbers.entries).namespaces.length,
          entries: Numbers.entries.length
        })
        Numbers.expectCounted(tables)
        yield* expectNumbers(directory)
      })
    )
  }

  if (isLong)
    describe.skipIf(!Disk.isPossible)("whose process is killed while it is migrated (Linux and a C compiler)", () => {
      it.scopedLive("has the right counts after the next start, wherever that was", () =>
        Effect.gen(function* () {
          const schema = schemaBefore("tenants")
          const calls = yield* callsOf(yield* directoryAt(schema))
          // Among them the first and the last.
          const chosen = Array.from({ length: 5 }, (_, index) => calls[Math.round((index * (calls.length - 1)) / 4)]!)
          for (const call of chosen) {
            const directory = yield* directoryAt(schema)
            expect(yield* killedAt(directory, call), JSON.stringify(call)).toBe(true)
            yield* expectNumbers(directory)
          }
        })
      )
    })
})
