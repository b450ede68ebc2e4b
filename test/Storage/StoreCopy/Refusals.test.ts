/** Copies of stores that are refused, and what they keep others from doing. */
import { existsSync } from "node:fs"
import { join } from "node:path"
import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import * as StoreCopy from "../../../src/Storage/StoreCopy.ts"
import { execute, newDatabase } from "../../postgres/Databases.ts"
import { live, onPostgres } from "../../postgres/Live.ts"
import { keys, lastSeq, put } from "../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { test } from "../../Tests.ts"
import { database, files, fill, inPostgres, inSqlite, refusal } from "./Fixture.ts"

onPostgres("Copies of stores", () => {
  test.scoped("are refused where the target is not empty, and change nothing there", function* () {
    const [directory, other] = [yield* temporaryDirectory, yield* temporaryDirectory]
    const [url, empty] = [yield* newDatabase, yield* newDatabase]
    yield* inSqlite(directory)(fill)
    yield* inSqlite(other)(put("n", "other", 1))
    yield* inPostgres(url)(put("n", "other", 1))
    expect(yield* refusal(StoreCopy.copy({ from: files(directory), to: database(url) }))).toContain("is not empty")
    expect(yield* refusal(StoreCopy.copy({ from: database(url), to: files(directory) }))).toContain("is not empty")
    // The wrong way round.
    expect(yield* refusal(StoreCopy.copy({ from: database(empty), to: files(directory) }))).toContain("has no store")
    const missing = join(directory, "missing")
    expect(yield* refusal(StoreCopy.copy({ from: files(missing), to: database(empty) }))).toContain("has no store")
    expect(existsSync(missing)).toBe(false)
    expect(yield* refusal(StoreCopy.copy({ from: files(directory), to: files(other) }))).toContain("Both stores")
    expect(yield* refusal(StoreCopy.copy({ from: database(url), to: database(empty) }))).toContain("Both stores")
    expect(yield* inPostgres(url)(lastSeq)).toBe(1)
    expect(yield* inSqlite(directory)(keys("n"))).toEqual(["a", "due", "keyed", "keyedt"])
    // Sessions without entries are a store, too.
    const onlySessions = yield* temporaryDirectory
    yield* inSqlite(onlySessions)(Effect.flatMap(SessionEvents, ({ open }) => open("t/one", "e")))
    expect(yield* refusal(StoreCopy.copy({ from: database(url), to: files(onlySessions) }))).toContain("is not empty")
    // An existing empty store is a valid target.
    yield* inPostgres(empty)(Effect.void)
    yield* StoreCopy.copy({ from: files(directory), to: database(empty) })
  })

  live("are refused while a process serves either store", function* () {
    const [directory, target] = [yield* temporaryDirectory, yield* temporaryDirectory]
    const [url, empty] = [yield* newDatabase, yield* newDatabase]
    yield* inSqlite(directory)(fill)
    const inUse = <A>(copying: Effect.Effect<A, StoreCopy.StoreCopyRefused | StoreCopy.StoreCopyFailed>) =>
      refusal(copying)
    yield* inSqlite(directory)(
      Effect.map(inUse(StoreCopy.copy({ from: files(directory), to: database(empty) })), message =>
        expect(message).toContain("is locked")
      )
    )
    yield* inSqlite(target)(
      Effect.map(inUse(StoreCopy.copy({ from: database(url), to: files(target) })), message =>
        expect(message).toContain("has no store")
      )
    )
    yield* inPostgres(url)(
      Effect.gen(function* () {
        const asTarget = StoreCopy.copy({ from: files(directory), to: database(url) })
        expect(yield* inUse(asTarget)).toContain("is served by a node")
        const asSource = StoreCopy.copy({ from: database(url), to: files(target) })
        expect(yield* inUse(asSource)).toContain("is served by a node")
      })
    )
    yield* StoreCopy.copy({ from: files(directory), to: database(url) })
    yield* inSqlite(target)(
      Effect.map(inUse(StoreCopy.copy({ from: database(url), to: files(target) })), message =>
        expect(message).toContain("is locked")
      )
    )
  })

  test.scoped("keep a node that has no lease from writing to the source", function* () {
    const [directory, target] = [yield* temporaryDirectory, yield* temporaryDirectory]
    const url = yield* newDatabase
    yield* inSqlite(directory)(fill)
    yield* StoreCopy.copy({ from: files(directory), to: database(url) })
    const writes = [
      "SELECT causeway.expire(9007199254740991, 10)",
      "DELETE FROM causeway.histories",
      "DELETE FROM causeway.launch_configurations",
      "SELECT causeway.renew_lease(gen_random_uuid(), 1000, true)"
    ]
    let refused: ReadonlyArray<unknown> = []
    const report = () =>
      refused.length > 0
        ? Effect.void
        : Effect.gen(function* () {
            refused = yield* Effect.forEach(writes, text =>
              Effect.flip(
                Effect.tryPromise({
                  try: () => execute(url, "SET lock_timeout = 20", text),
                  catch: error => (error as { code?: string }).code
                })
              )
            ).pipe(Effect.orDie)
          })
    yield* StoreCopy.copy({ from: database(url), to: files(target), report })
    expect(refused).toEqual(writes.map(() => "55P03"))
  })
})
