import { readdirSync } from "node:fs"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Duration, Effect, Exit, Fiber, Redacted } from "effect"
import { download } from "../../src/CommandLine/Store/BackupDownload.ts"
import * as StalledFiles from "../faults/StalledFiles.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"

/** A service that starts to send a backup and then stops. Returns its address. */
const service = Effect.map(
  Effect.acquireRelease(
    Effect.async<ReturnType<typeof createServer>>(resume => {
      const server = createServer((_, response) => {
        response.writeHead(200, {
          "content-type": "application/vnd.sqlite3",
          "content-length": 4096,
          "repr-digest": `sha-256=:${Buffer.alloc(32).toString("base64")}:`,
          "kv-last-seq": 1,
          "kv-epoch": "e"
        })
        response.flushHeaders()
      })
      server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
    }),
    server =>
      Effect.async<void>(resume => {
        server.close(() => resume(Effect.void))
        server.closeAllConnections()
      })
  ),
  server => `http://127.0.0.1:${(server.address() as AddressInfo).port}`
)

describe("the download of a backup", () => {
  it.scopedLive("leaves no file if it is interrupted while the disk does not answer", () =>
    Effect.gen(function* () {
      const place = yield* temporaryDirectory
      const connection = {
        url: yield* service,
        kind: "store" as const,
        token: Redacted.make("key"),
        source: "test",
        timeout: Duration.seconds(60)
      }
      const disk = yield* StalledFiles.make
      const options = { target: join(place, "store.db"), force: false, report: () => {} }
      const downloading = yield* Effect.fork(download(connection, options))
      yield* Effect.raceFirst(
        disk.queued(1),
        Effect.flatMap(Fiber.join(downloading), () => Effect.die("not stalled"))
      )
      assert.isTrue(Exit.isInterrupted(yield* Fiber.interrupt(downloading)))
      yield* disk.answer
      assert.deepStrictEqual(readdirSync(place), [])
    })
  )
})
