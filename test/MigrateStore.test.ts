/** `causeway migrate-store` as a process. */

import { existsSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Logger, Schedule } from "effect"
import { unfinishedCopyOf } from "../src/Storage/Sqlite/Database/Connection.ts"
import { applicationIdOf } from "../src/Storage/Sqlite/Database/Opening.ts"
import { format } from "../src/Storage/Sqlite/Kv/Schema.ts"
import * as Sqlite from "../src/Storage/Sqlite.ts"
import { fail } from "./CommandLine/InProcess.ts"
import { createDatabase, withClient } from "./postgres/Databases.ts"
import { reasonToSkip } from "./postgres/Server.ts"
import { onlyLong } from "./Scale.ts"
import { launch, runToEnd } from "./service/Command.ts"
import { put } from "./suites/Store/Fixture.ts"
import { temporaryDirectory } from "./TemporaryDirectory.ts"

const inStore = (directory: string) =>
  Effect.provide(Layer.provide(Sqlite.layer({ directory, writer: "inline" }), Logger.remove(Logger.defaultLogger)))

/** The value of an entry that a service process answers. */
const served = (env: Readonly<Record<string, string>>) =>
  Effect.gen(function* () {
    const service = yield* launch({ KV_API_KEY: "sesame", HOST: "127.0.0.1", ...env })
    const [, port] = yield* service.shows(/"Listening".*?"port":(\d+)[,}]/)
    const answer = yield* Effect.promise(() =>
      fetch(`http://127.0.0.1:${port}/api/v1/kv/n/k`, { headers: { authorization: "Bearer sesame" } })
    )
    const entry = (yield* Effect.promise(() => answer.json())) as { readonly value?: unknown }
    yield* service.kill("SIGTERM")
    yield* service.ended
    return entry.value
  }).pipe(Effect.scoped)

/** What marks a store that is not finished. */
const copied = unfinishedCopyOf(format).applicationId

describe.skipIf(reasonToSkip !== undefined)(`causeway migrate-store ${reasonToSkip ?? ""}`, () => {
  onlyLong(it.scopedLive)(
    "copies there and back; when it is killed, no service takes what is there until it is finished",
    () =>
      Effect.gen(function* () {
        const [first, last] = [yield* temporaryDirectory, join(yield* temporaryDirectory, "made", "here")]
        const url = yield* Effect.promise(() => createDatabase())
        yield* inStore(first)(put("n", "k", "carried"))

        const there = yield* runToEnd({ STORE_URL: url }, ["migrate-store", "--from", `sqlite:${first}`])
        assert.strictEqual(there.code, 0, there.stderr)
        const { from, tables, to, type } = JSON.parse(there.stdout)
        assert.deepStrictEqual([type, from], ["done", `sqlite:${first}`])
        assert.match(to, /^postgres:\/\/127\.0\.0\.1:\d+\/\w+$/)
        const entries = tables.find(({ table }: { readonly table: string }) => table === "entries")
        assert.strictEqual(entries.rows, 1)
        assert.match(entries.digest, /^[0-9a-f]{64}$/)
        assert.match(there.stderr, /^copy: 100 % {2}2 rows, .*$/m)

        const back = ["migrate-store", "--to", `sqlite:${last}`, "--json"]
        yield* withClient(url, function* (query) {
          // The copy waits after it has started.
          yield* query("BEGIN")
          yield* query("LOCK TABLE causeway.receipts")
          const killed = yield* launch({ STORE_URL: url }, back)
          const file = join(last, "kv.db")
          const isStarted = Effect.sync(() => existsSync(file) && applicationIdOf(file) === copied)
          yield* Effect.repeat(isStarted, { until: isStarted => isStarted, schedule: Schedule.spaced("20 millis") })
          yield* killed.kill("SIGKILL")
          yield* killed.ended
        })
        const refused = yield* runToEnd({ KV_API_KEY: "sesame", DATA_DIR: last })
        assert.strictEqual(refused.code, 1)
        assert.match(refused.stderr, /^causeway cannot start\. .*run causeway migrate-store again/)
        const again = yield* runToEnd({ STORE_URL: url }, back)
        assert.strictEqual(again.code, 0, again.stderr)
        const lines = again.stdout
          .trim()
          .split("\n")
          .map(line => JSON.parse(line) as { readonly type: string; readonly isRestarted?: boolean })
        assert.deepInclude(lines.at(-1), { type: "done", isRestarted: true })
        assert.deepStrictEqual([...new Set(lines.slice(0, -1).map(({ type }) => type))], ["progress"])
        assert.strictEqual(yield* served({ DATA_DIR: last }), "carried")
      })
  )

  it.scopedLive("reports the problem, without a password", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      yield* inStore(directory)(put("n", "k", 1))
      const of = (...args: ReadonlyArray<string>) => fail(["migrate-store", ...args])
      const [none, unknown, address, unreachable, password, parameter] = yield* Effect.all(
        [
          of(),
          of("--into", "x"),
          of("--from", "sqlite:x", "--to", "postgres:/user:secret@host"),
          runToEnd({ PGPASSWORD: "secret" }, [
            ...["migrate-store", "--from", `sqlite:${directory}`, "--to", "postgres://user@127.0.0.1:1/db"]
          ]),
          of("--from", `sqlite:${directory}`, "--to", "postgres://user:secret@127.0.0.1:1/db"),
          of("--from", "postgres://user@127.0.0.1:1/db?password=secret", "--to", `sqlite:${directory}`)
        ],
        { concurrency: 2 }
      )
      assert.deepStrictEqual(
        [none, unknown, address, unreachable, password, parameter].map(({ code }) => code),
        [2, 2, 2, 1, 2, 2]
      )
      assert.match(none!.stderr, /requires --from or --to/)
      assert.match(unknown!.stderr, /--into/)
      assert.match(address!.stderr, /^--to is not sqlite:/)
      assert.match(
        unreachable!.stderr,
        /^Nothing was copied\. postgres:\/\/127\.0\.0\.1:1\/db cannot be reached: .*ECONNREFUSED/
      )
      assert.match(password!.stderr, /^--to must not have a password.* STORE_URL.* PGPASSWORD .* PGPASSFILE /)
      assert.match(parameter!.stderr, /^--from must not have a password/)
      for (const { stderr } of [address!, unreachable!, password!, parameter!]) assert.notMatch(stderr, /secret/)
    })
  )
})
