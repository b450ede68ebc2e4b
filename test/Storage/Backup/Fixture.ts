/** Data directories for tests of backups and restores. */
import { readdirSync } from "node:fs"
import Database from "better-sqlite3"
import { Effect, type Scope } from "effect"
import { histories } from "../../../src/Storage/Backup/Manifest.ts"
import * as Backup from "../../../src/Storage/Backup.ts"
import * as Opening from "../../../src/Storage/Sqlite/Database/Opening.ts"
import { put } from "../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { using } from "../SqliteFixture.ts"

export const inStore =
  (directory: string) =>
  <A, E, R>(body: Effect.Effect<A, E, R>) =>
    using(directory, body)

/** A data directory with a store of so many entries. */
export const store = (entries: number): Effect.Effect<string, unknown, Scope.Scope> =>
  Effect.gen(function* () {
    const directory = yield* temporaryDirectory
    yield* inStore(directory)(
      Effect.forEach(
        Array.from({ length: entries }, (_, n) => n),
        n => put("n", `k${n}`, n)
      )
    )
    return directory
  })

const everything = { storeOnly: false, force: false, maxLogBytes: 1024 ** 3 }

export const backUp = (directory: string, target: string, options: Partial<Backup.Options> = {}) =>
  Backup.make({ ...everything, directory, target, ...options })

export const failure = <A, E extends { readonly message: string }>(effect: Effect.Effect<A, E>) =>
  Effect.map(Effect.flip(effect), ({ message }) => message)

export const names = (directory: string) => readdirSync(directory).sort()

/** Creates the database of histories, with one history if it is named. */
export const makeSessions = (directory: string, session?: string) =>
  Effect.map(Effect.scoped(Opening.open(directory, histories.format)), ({ file }) => {
    const db = new Database(file)
    if (session !== undefined) {
      db.prepare("INSERT INTO histories (session, epoch, head, trimmed, bytes) VALUES (?, 'old', 3, 0, 0)").run(session)
    }
    db.close()
    return file
  })
