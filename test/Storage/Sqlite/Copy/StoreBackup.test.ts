/** Backups of a store that is open, as the service makes them. */
import { hash } from "node:crypto"
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe } from "@effect/vitest"
import { Effect, Fiber, Layer, Logger, Stream } from "effect"
import { Store } from "../../../../src/Kv/Store.ts"
import { store as storePart } from "../../../../src/Storage/Backup/Manifest.ts"
import * as CopyPort from "../../../../src/Storage/Sqlite/Copy/CopyPort.ts"
import * as Sqlite from "../../../../src/Storage/Sqlite.ts"
import { test } from "../../../Tests.ts"
import { names, store } from "../../Backup/Fixture.ts"
import { epoch } from "../../SqliteFixture.ts"

describe("a backup of an open store", () => {
  for (const writer of ["thread", "inline"] as const) {
    test.scopedLive(`is one at a time, and is removed with its scope (${writer})`, function* () {
      const directory = yield* store(3)
      // A copy of a killed process, and a file of another program.
      for (const name of ["kv.backup-0123456789abcdef.tmp-journal", "kv.backup-mine.tmp"]) {
        writeFileSync(join(directory, name), "")
      }
      const copies = () => names(directory).filter(name => name.includes("backup"))
      const open = Layer.provide(Sqlite.layer({ directory, writer }), Logger.remove(Logger.defaultLogger))
      yield* Effect.gen(function* () {
        assert.deepStrictEqual(copies(), ["kv.backup-mine.tmp"])
        const { backup: turn } = yield* Store
        const backup = Effect.flatMap(turn, ({ copy }) => copy)
        const received = join(directory, "received.db")
        yield* Effect.scoped(
          Effect.gen(function* () {
            const made = yield* backup
            assert.deepInclude(made, { lastSeq: 3, epoch: yield* epoch })
            assert.lengthOf(copies(), 2)
            assert.strictEqual((yield* Effect.flip(Effect.scoped(backup)))._tag, "StoreBusy")
            const chunks = Array.from(yield* Stream.runCollect(made.content))
            writeFileSync(received, Buffer.concat(chunks))
            assert.strictEqual(hash("sha256", readFileSync(received), "hex"), made.sha256)
            assert.strictEqual(readFileSync(received).length, made.bytes)
          })
        )
        assert.deepStrictEqual(copies(), ["kv.backup-mine.tmp"])
        // A permission that is not used makes no copy.
        yield* Effect.scoped(
          Effect.zipRight(
            turn,
            Effect.sync(() => assert.lengthOf(copies(), 1))
          )
        )
        const interrupted = yield* Effect.fork(Effect.scoped(backup))
        yield* Effect.yieldNow()
        yield* Fiber.interrupt(interrupted)
        assert.deepStrictEqual(copies(), ["kv.backup-mine.tmp"])
        yield* Effect.scoped(backup)
        const verified = yield* CopyPort.verify({ ...storePart, file: received })
        assert.deepInclude(verified, { lastSeq: 3, count: 3 })
      }).pipe(Effect.provide(open))
    })
  }
})
