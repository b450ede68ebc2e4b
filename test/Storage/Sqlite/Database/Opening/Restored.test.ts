/** How restored files are put into position, with failures at any step, and a kill at any step. */
import fs, {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { syncBuiltinESMExports } from "node:module"
import { join } from "node:path"
import { assert, layer } from "@effect/vitest"
import Database from "better-sqlite3"
import { Context, Effect, Layer, Logger, type Scope } from "effect"
import { store as storePart } from "../../../../../src/Storage/Backup/Manifest.ts"
import * as Restored from "../../../../../src/Storage/Sqlite/Database/Opening/Restored.ts"
import * as Opening from "../../../../../src/Storage/Sqlite/Database/Opening.ts"
import { put } from "../../../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../../../TemporaryDirectory.ts"
import { testsOf } from "../../../../Tests.ts"
import { backUp, failure, inStore, makeSessions, names, store } from "../../../Backup/Fixture.ts"

const draftIn = (directory: string): string => join(directory, "restore.0123456789abcdef.part")

/** The restored files, and the replaced ones: the old store has its newest change only in its log. */
class Stores extends Context.Tag("causeway/test/Restored/Stores")<
  Stores,
  {
    readonly old: string
    /** A data directory with the old store, and a draft of the other one in it. */
    readonly prepare: Effect.Effect<string, never, Scope.Scope>
  }
>() {}

/** They are made once, and copied for each restore. */
const stores = Layer.scoped(
  Stores,
  Effect.gen(function* () {
    const [fresh, live, old] = [yield* store(2), yield* store(3), yield* temporaryDirectory]
    yield* makeSessions(old, "tenant/one")
    yield* inStore(live)(
      Effect.tap(put("n", "in the log", 1), () => {
        for (const name of ["kv.db", "kv.db-wal", "kv.epoch"]) copyFileSync(join(live, name), join(old, name))
      })
    )
    const without = yield* temporaryDirectory
    copyFileSync(join(old, "kv.db"), join(without, "kv.db"))
    assert.strictEqual(find(join(without, "kv.db"), newest), 3)
    const prepare = Effect.map(temporaryDirectory, directory => {
      for (const name of names(old)) if (!name.endsWith(".lock")) copyFileSync(join(old, name), join(directory, name))
      mkdirSync(draftIn(directory))
      for (const name of ["kv.db", "kv.epoch"]) copyFileSync(join(fresh, name), join(draftIn(directory), name))
      return directory
    })
    return { old, prepare }
  })
)

/** Opens a store, as its next start does. */
const open = (directory: string) =>
  Effect.provide(Effect.scoped(Opening.open(directory, storePart.format)), Logger.remove(Logger.defaultLogger))

/** What a query finds in a database, as any program reads it. */
const find = (file: string, query: string): unknown => {
  const db = new Database(file)
  try {
    return db.prepare(query).pluck().get()
  } finally {
    db.close()
  }
}

const newest = "SELECT max(seq) FROM changes"

const isOld = (directory: string): void => {
  assert.strictEqual(find(join(directory, "kv.db"), newest), 4, "the old store is whole")
  assert.strictEqual(find(join(directory, "sessions.db"), "SELECT session FROM histories"), "tenant/one")
}

const isRestored = (directory: string): void => {
  assert.strictEqual(find(join(directory, "kv.db"), newest), 2, "the other store is whole")
  const others = names(directory).filter(name => name.startsWith("sessions.db") || name.startsWith("restore."))
  assert.deepStrictEqual(others, [])
  isOld(join(directory, "aside"))
}

/** Whether a change of a directory fails, by its number and its path. After it `later` changes are made. */
interface Fault {
  readonly fails: (call: number, path: string) => boolean
  /** None if the process is killed there. */
  readonly later: number
}

const faulty = (fails: Fault["fails"], later = Number.POSITIVE_INFINITY): Fault => ({ fails, later })

/** Runs `body` with functions of the file system that fail. */
const withFault = ({ fails, later }: Fault, body: () => void): void => {
  let calls = 0
  let left = Number.POSITIVE_INFINITY
  const { fsyncSync, mkdirSync, renameSync, rmSync, unlinkSync, writeFileSync } = fs
  const changes = { fsyncSync, mkdirSync, renameSync, rmSync, unlinkSync, writeFileSync }
  const guarded = Object.entries(changes).map(([name, change]) => [
    name,
    (...parameters: ReadonlyArray<unknown>): unknown => {
      if (left === 0) throw new Error("killed")
      left--
      if (left === Number.POSITIVE_INFINITY && fails(calls++, String(parameters[0]))) {
        left = later
        throw new Error("failed")
      }
      return Reflect.apply(change, fs, parameters)
    }
  ])
  const set = (functions: object): void => {
    Object.assign(fs, functions)
    syncBuiltinESMExports()
  }
  set(Object.fromEntries(guarded))
  try {
    body()
  } finally {
    set(changes)
  }
}

/** Restores, and returns how that has failed. */
const attempt = (directory: string, fault: Fault): unknown => {
  try {
    withFault(fault, () => Restored.put(directory, draftIn(directory), "aside"))
    return undefined
  } catch (error) {
    return error
  }
}

/** That a restore has taken place, or nothing of it, once its directory has been opened again. */
const isEither = (directory: string, isTaken: boolean) =>
  Effect.gen(function* () {
    if (!isTaken) {
      assert.isFalse(Restored.isUnfinished(directory))
      assert.isTrue(existsSync(draftIn(directory)))
      assert.isFalse(existsSync(join(directory, "aside")))
    }
    yield* open(directory)
    if (isTaken) isRestored(directory)
    else isOld(directory)
  })

/** Whether a restore has taken place, by the directory alone: who was killed says nothing. */
const isTakenIn = (directory: string): boolean => !existsSync(draftIn(directory))

/** More steps than a restore has. A restore that never ends fails its test. */
const maxSteps = 200

/**
 * Restores once for each step at which that may go wrong, up to the one that is not reached any more, and returns whether
 * it has taken place each time.
 */
const walk = (
  faultAt: (step: number, directory: string) => Fault,
  outcomeOf: (directory: string, error: unknown) => { readonly isTaken: boolean; readonly isLast: boolean }
) =>
  Effect.gen(function* () {
    const { prepare } = yield* Stores
    const outcomes: Array<boolean> = []
    for (let isOver = false; !isOver; ) {
      assert.isBelow(outcomes.length, maxSteps, "the last step is never reached")
      const directory = yield* prepare
      const { isLast, isTaken } = outcomeOf(directory, attempt(directory, faultAt(outcomes.length, directory)))
      outcomes.push(isTaken)
      isOver = isLast
      yield* isEither(directory, isTaken)
    }
    return outcomes
  })

layer(stores, { excludeTestServices: true })("a restore of files", it => {
  const test = testsOf(it)
  test.scoped("has not taken place, or is finished by the next start, wherever it is killed", function* () {
    const outcomes = yield* walk(
      step => faulty(call => call === step, 0),
      (directory, error) => ({ isTaken: isTakenIn(directory), isLast: error === undefined })
    )
    assert.isAbove(outcomes.length, 15)
    assert.deepStrictEqual([...new Set(outcomes)], [false, true])
  })

  test.scoped("that fails has not taken place, or reports that it has, whatever fails", function* () {
    const outcomes = yield* walk(
      step => faulty(call => call === step),
      (_, error) => ({
        isTaken: error === undefined || error instanceof Restored.Unfinished,
        isLast: error === undefined
      })
    )
    assert.isAbove(outcomes.length, 15)
    assert.deepStrictEqual([...new Set(outcomes)], [false, true])
  })

  test.scoped("that fails is finished by the next start if it is killed during its reversal", function* () {
    const outcomes = yield* walk(
      // The logs were moved aside by then.
      (step, directory) => faulty((_, path) => path === join(directory, "kv.db"), step),
      (directory, error) => {
        assert.instanceOf(error, Error)
        return { isTaken: isTakenIn(directory), isLast: !isTakenIn(directory) }
      }
    )
    assert.isAbove(outcomes.length, 3)
  })

  test.scoped(
    "replaces nothing that another program makes while it is unfinished, and applies no log of it",
    function* () {
      const { old, prepare } = yield* Stores
      const log = readFileSync(join(old, "kv.db-wal"))
      // Killed after the old log was moved aside, and before kv.db was.
      const moving = yield* prepare
      attempt(
        moving,
        faulty((_, path) => path === join(moving, "kv.db"), 0)
      )
      assert.isFalse(existsSync(join(moving, "kv.db-wal")))
      writeFileSync(join(moving, "kv.db-wal"), "of another program")
      yield* open(moving)
      isRestored(moving)
      assert.strictEqual(readFileSync(join(moving, "aside", "kv.db-wal.2"), "utf8"), "of another program")

      // Killed after all old files were moved aside.
      for (const [name, content] of [
        ["kv.db-wal", log],
        ["sessions.db-wal", log],
        ["kv.db-journal", Buffer.from("changes")],
        ["kv.db", Buffer.from("another database")]
      ] as const) {
        const directory = yield* prepare
        attempt(
          directory,
          faulty((_, path) => path === join(directory, "restore.ready", "kv.db"), 0)
        )
        writeFileSync(join(directory, name), content)
        const { message } = yield* Effect.flip(open(directory))
        assert.include(message, `${join(directory, name)} was created during the restore: move it away`)
        assert.deepStrictEqual(readFileSync(join(directory, name)), content)
        rmSync(join(directory, name))
        yield* open(directory)
        isRestored(directory)
      }
    }
  )

  test.scoped("is finished for a database that is linked from another directory", function* () {
    const { prepare } = yield* Stores
    for (const killedAt of ["kv.db", join("restore.ready", "kv.db")]) {
      const directory = yield* prepare
      const linked = yield* temporaryDirectory
      symlinkSync(join(directory, "kv.db"), join(linked, "kv.db"))
      attempt(
        directory,
        faulty((_, path) => path === join(directory, killedAt), 0)
      )
      const target = join(linked, "backup")
      assert.match(yield* failure(backUp(linked, target)), /has a restore that was not finished$|kv\.db cannot be read/)
      yield* open(linked)
      isRestored(directory)
    }
  })

  test.scoped("of another process is not passed by while a store is opened", function* () {
    const { prepare } = yield* Stores
    const directory = yield* prepare
    const other = yield* prepare
    Restored.commit(directory, draftIn(directory), "aside")
    // The line comes when a first restore has been finished, and before the lock is taken for good.
    const restoring = Logger.make(() => {
      if (!existsSync(draftIn(other))) return
      renameSync(draftIn(other), draftIn(directory))
      Restored.commit(directory, draftIn(directory), "aside-2")
    })
    const opening = Effect.scoped(Opening.open(directory, storePart.format))
    const refused = yield* Effect.flip(Effect.provide(opening, Logger.replace(Logger.defaultLogger, restoring)))
    assert.match(refused.message, /was restored in the meantime, and that is not finished: start again$/)
    yield* open(directory)
    assert.isFalse(Restored.isUnfinished(directory))
    assert.include(names(join(directory, "aside-2")), "kv.db")
  })
})
