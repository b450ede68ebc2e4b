/** Stores on disk: how tests open, write, back up and change them. */
import { readFileSync } from "node:fs"
import { join } from "node:path"
import Database from "better-sqlite3"
import { Effect, Either, Layer, Logger, Schedule } from "effect"
import type { YieldWrap } from "effect/Utils"
import { ChangeLog } from "../../src/Kv/ChangeLog.ts"
import * as Sqlite from "../../src/Storage/Sqlite.ts"
import { put } from "../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"

/** A new store in a separate directory. */
export const temporaryLayer = (writer: "thread" | "inline") =>
  Layer.unwrapScoped(Effect.map(temporaryDirectory, directory => Sqlite.layer({ directory, writer })))

export const quiet = Logger.remove(Logger.defaultLogger)

/** Runs something on the store in a directory, opened and closed for it. */
export const using = <A, E, R>(
  directory: string,
  body: Effect.Effect<A, E, R>,
  writer: "inline" | "thread" = "inline"
) => body.pipe(Effect.provide(Sqlite.layer({ directory, writer })), Effect.provide(quiet))

/** Runs the steps of a generator on the store in a directory, opened and closed for them. */
export const during = <Y extends YieldWrap<Effect.Effect<unknown, unknown, unknown>>, A>(
  directory: string,
  body: () => Generator<Y, A, never>,
  writer: "inline" | "thread" = "inline"
) => using(directory, Effect.gen(body), writer)

/** Why the store in a directory is refused. */
export const refusal = (directory: string) =>
  Effect.map(
    Effect.either(Effect.scoped(Layer.build(Sqlite.layer({ directory, writer: "inline" })))),
    Either.match({ onLeft: error => error, onRight: () => undefined })
  )

/** With a thread, a new file is opened a moment after the old one was missed. */
export const eventually = <A, E, R>(attempt: Effect.Effect<A, E, R>) =>
  Effect.retry(attempt, { schedule: Schedule.spaced("10 millis"), times: 6000 })

/** The epoch of the log. */
export const epoch = Effect.flatMap(ChangeLog, log =>
  Effect.map(log.read({ after: 0, limit: 1, tenant: "" }), page => page.epoch)
)

export const epochIn = (directory: string) => using(directory, epoch)

export const write = (...keys: ReadonlyArray<string>) =>
  Effect.forEach(keys, key => put("n", key, key), { discard: true })

/** Copies the database as SQLite's own backup does, also if it is open. */
export const backUp = (directory: string, to: string) =>
  Effect.promise(async () => {
    const db = new Database(join(directory, "kv.db"), { readonly: true })
    await db.backup(to)
    db.close()
  })

/** The record of the epoch in the directory of a store. */
export const recordIn = (directory: string) => readFileSync(join(directory, "kv.epoch"), "latin1")

/** A directory with a store of three changes that is closed, a backup from before the last of them, and its epoch. */
export const setup = Effect.gen(function* () {
  const directory = yield* temporaryDirectory
  const backup = join(yield* temporaryDirectory, "backup.db")
  const first = yield* using(
    directory,
    Effect.gen(function* () {
      yield* write("a", "b")
      yield* backUp(directory, backup)
      yield* write("c")
      return yield* epoch
    })
  )
  return { directory, file: join(directory, "kv.db"), backup, first }
})
