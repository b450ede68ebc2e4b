/** Copies of stores that end halfway. */
import { cpSync, statSync } from "node:fs"
import { join } from "node:path"
import { expect } from "@effect/vitest"
import { Effect, Exit } from "effect"
import * as StoreCopy from "../../../src/Storage/StoreCopy.ts"
import { newDatabase } from "../../postgres/Databases.ts"
import { onPostgres } from "../../postgres/Live.ts"
import { lastSeq, put } from "../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { test } from "../../Tests.ts"
import { contentOf, database, files, fill, inPostgres, inSqlite, refusal } from "./Fixture.ts"

onPostgres("Copies of stores", () => {
  /** Ends a copy after so many pages. */
  const endAfter = (pages: number, onEnd: Effect.Effect<void> = Effect.void) => {
    let left = pages
    return () => (--left > 0 ? Effect.void : Effect.zipRight(onEnd, Effect.interrupt))
  }

  test.scoped("into PostgreSQL that end halfway leave a store that no node serves, and start again", function* () {
    const [directory, other] = [yield* temporaryDirectory, yield* temporaryDirectory]
    const url = yield* newDatabase
    yield* inSqlite(directory)(fill)
    yield* inSqlite(other)(fill)
    const content = yield* inSqlite(directory)(contentOf)
    const copying = StoreCopy.copy({ from: files(directory), to: database(url), report: endAfter(3) })
    expect(Exit.isInterrupted(yield* Effect.exit(copying))).toBe(true)
    expect(String(yield* Effect.flip(inPostgres(url)(lastSeq)))).toContain("run causeway migrate-store again")
    // Not with another source, and not as a source.
    expect(yield* refusal(StoreCopy.copy({ from: files(other), to: database(url) }))).toContain("another store")
    const asSource = StoreCopy.copy({ from: database(url), to: files(join(other, "target")) })
    expect(yield* refusal(asSource)).toContain("not finished")
    // What one process copies, a second one does not.
    let second: string | undefined
    const { isRestarted } = yield* StoreCopy.copy({
      from: files(directory),
      to: database(url),
      report: () =>
        second !== undefined
          ? Effect.void
          : Effect.gen(function* () {
              const copy = yield* temporaryDirectory
              cpSync(directory, copy, { recursive: true, filter: file => !file.endsWith(".lock") })
              second = String(yield* Effect.exit(StoreCopy.copy({ from: files(copy), to: database(url) })))
            }).pipe(Effect.scoped)
    })
    expect(isRestarted).toBe(true)
    expect(second).toContain("Another process")
    expect(yield* inPostgres(url)(contentOf)).toEqual(content)
  })

  test.scoped(
    "into SQLite that are killed halfway leave a store that no process serves, and start again",
    function* () {
      const [directory, target, killed] = [
        yield* temporaryDirectory,
        yield* temporaryDirectory,
        yield* temporaryDirectory
      ]
      const [url, other] = [yield* newDatabase, yield* newDatabase]
      yield* inSqlite(directory)(fill)
      yield* StoreCopy.copy({ from: files(directory), to: database(url) })
      const content = yield* inPostgres(url)(contentOf)
      // An empty store exists before.
      yield* inSqlite(target)(Effect.void)
      // The files as a process leaves them that is killed there.
      const leave = Effect.sync(() =>
        cpSync(target, killed, { recursive: true, filter: file => statSync(file).isDirectory() || !/-shm$/.test(file) })
      )
      const copying = StoreCopy.copy({ from: database(url), to: files(target), report: endAfter(4, leave) })
      expect(Exit.isInterrupted(yield* Effect.exit(copying))).toBe(true)
      for (const place of [target, killed]) {
        expect(String(yield* Effect.flip(inSqlite(place)(lastSeq)))).toContain("run causeway migrate-store again")
      }
      yield* inPostgres(other)(put("n", "other", 1))
      expect(yield* refusal(StoreCopy.copy({ from: database(other), to: files(killed) }))).toContain("another store")
      for (const place of [target, killed]) {
        const { isRestarted } = yield* StoreCopy.copy({ from: database(url), to: files(place) })
        expect(isRestarted).toBe(true)
        expect(yield* inSqlite(place)(contentOf)).toEqual(content)
      }
    }
  )
})
