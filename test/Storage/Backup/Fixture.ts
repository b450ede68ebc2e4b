/** Data directories, and what is done with them in tests of backups and restores. */
import { readdirSync } from "node:fs"
import { Effect, Layer, Logger, type Scope } from "effect"
import * as Backup from "../../../src/Storage/Backup.ts"
import * as Sqlite from "../../../src/Storage/Sqlite.ts"
import { put } from "../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../SqliteFixture.ts"

export const inStore = (directory: string) =>
  Effect.provide(Layer.provide(Sqlite.layer({ directory, writer: "inline" }), Logger.remove(Logger.defaultLogger)))

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

const everything = { storeOnly: false, force: false, mostLogBytes: 1024 ** 3 }

export const backUp = (directory: string, target: string, options: Partial<Backup.Options> = {}) =>
  Backup.make({ ...everything, directory, target, ...options })

export const failure = <A, E extends { readonly message: string }>(effect: Effect.Effect<A, E>) =>
  Effect.map(Effect.flip(effect), ({ message }) => message)

export const names = (directory: string) => readdirSync(directory).sort()
