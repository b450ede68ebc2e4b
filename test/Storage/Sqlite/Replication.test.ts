import * as FileSystem from "@effect/platform/FileSystem"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Effect, Fiber, Option, TestClock } from "effect"
import type { Dependency } from "../../../src/Operations/Health/Api.ts"
import * as Replication from "../../../src/Storage/Sqlite/Replication.ts"
import { test } from "../../Tests.ts"

/** What the check says of a directory with these files; a name that ends in a slash is a directory's. */
const checked = (...names: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const files = yield* FileSystem.FileSystem
    const directory = yield* files.makeTempDirectoryScoped({ prefix: "causeway-" })
    for (const name of names) {
      const path = `${directory}/${name}`
      if (name.endsWith("/")) yield* files.makeDirectory(path, { recursive: true })
      else yield* files.writeFileString(path, "")
    }
    return yield* Replication.check({ directory })
  }).pipe(Effect.scoped, Effect.provide(NodeFileSystem.layer))

const ok: Dependency = { name: "replication", status: "ok" }
const without: Dependency = {
  name: "replication",
  status: "degraded",
  error: "The data directory has databases and no replication metadata"
}

describe("the replication check", () => {
  const cases: ReadonlyArray<readonly [title: string, expected: Dependency, ...names: ReadonlyArray<string>]> = [
    ["in an empty directory", ok],
    ["without databases", ok, "kv.lock", "notes.txt", ".hidden.db", "logs/"],
    ["with files of an old replicator", ok, "kv.db", ".kv.db-litestream/generations/"],
    ["with one generation", ok, "kv.db", ".kv.db-litestream/", ".kv.db-litestream/generation/"],
    ["with files of a new replicator", ok, "kv.db", "kv.db-wal", ".kv.db-litestream/ltx/0/"],
    ["next to other hidden directories", ok, "kv.db", ".other/", ".kv.db-litestream/generations/1f/"],
    ["with a hidden directory of this name", ok, "kv.db", ".generations/"],
    ["with a database alone", without, "kv.db"],
    ["with a directory that is not hidden", without, "kv.db", "kv.db-wal", "generations/"],
    ["with an empty hidden directory", without, "sessions.db", ".kv.db-litestream/"],
    ["with directories of others", without, "kv.sqlite3", ".cache/", ".profile"],
    ["with a file of this name", without, "kv.db", ".kv.db-litestream/", ".kv.db-litestream/generation"],
    ["with a hidden file of this name", without, "kv.db", ".generations"],
    ["with a file and a directory", ok, "kv.db", ".generation", ".kv.db-litestream/ltx/"]
  ]
  it.effect.each(cases)("%s", ([, expected, ...names]) =>
    Effect.map(checked(...names), found => assert.deepStrictEqual(found, expected))
  )

  it.effect("is ok without the directory", () =>
    Replication.check({ directory: "/nonexistent/causeway" }).pipe(
      Effect.map(found => assert.deepStrictEqual(found, ok)),
      Effect.provide(NodeFileSystem.layer)
    )
  )

  test.effect("is degraded with a reason if the directory cannot be read", function* () {
    const file = Effect.gen(function* () {
      const files = yield* FileSystem.FileSystem
      return yield* Replication.check({ directory: yield* files.makeTempFileScoped() })
    }).pipe(Effect.scoped, Effect.provide(NodeFileSystem.layer))
    const { status, error } = yield* file
    assert.strictEqual(status, "degraded")
    assert.match(error ?? "", /^The data directory cannot be read \(\w+\)$/)
  })

  test.effect("does not wait for a disk that hangs", function* () {
    const check = Replication.check({ directory: "." })
    const fiber = yield* Effect.fork(
      Effect.provideService(check, FileSystem.FileSystem, FileSystem.makeNoop({ readDirectory: () => Effect.never }))
    )
    yield* TestClock.adjust("2 seconds")
    assert.deepStrictEqual(yield* Fiber.join(fiber), {
      name: "replication",
      status: "degraded",
      error: "The data directory does not answer within 2s"
    })
  })

  test.effect("runs only if it is enabled", function* () {
    const load = (variables: Readonly<Record<string, string>>) =>
      Effect.withConfigProvider(Replication.config, ConfigProvider.fromMap(new Map(Object.entries(variables))))
    assert.deepStrictEqual(yield* load({}), Option.none())
    assert.deepStrictEqual(yield* load({ REPLICATION_ENABLED: "false" }), Option.none())
    assert.deepStrictEqual(yield* load({ REPLICATION_ENABLED: "" }), Option.none())
    assert.deepStrictEqual(
      yield* load({ REPLICATION_ENABLED: "true", DATA_DIR: "/data" }),
      Option.some({ directory: "/data" })
    )
  })
})
