/** What `causeway backup` copies: a data directory, or the store of a service that an option names. */
import { existsSync, readdirSync, writeFileSync } from "node:fs"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { join } from "node:path"
import { assert, describe } from "@effect/vitest"
import { Duration, Effect, Exit, Fiber, Redacted } from "effect"
import { download } from "../../src/CommandLine/Store/BackupDownload.ts"
import * as StalledFiles from "../faults/StalledFiles.ts"
import { keys } from "../Harness.ts"
import { serve } from "../service/InProcess.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { test } from "../Tests.ts"
import * as InProcess from "./InProcess.ts"

describe("causeway backup", () => {
  test.scopedLive(
    "takes the address and the key of a service from a profile, which alone does not ask for it",
    function* () {
      const [directory, place] = [yield* temporaryDirectory, yield* temporaryDirectory]
      const { url } = yield* serve({ DATA_DIR: directory, KV_API_KEY: keys.write })
      const profiles = join(place, "profiles.json")
      writeFileSync(profiles, JSON.stringify({ prod: { url, token: keys.write } }), { mode: 0o600 })
      const backUp = (name: string, args: ReadonlyArray<string>, env: Readonly<Record<string, string>> = {}) =>
        Effect.map(
          InProcess.call(["backup", join(place, name), ...args], {
            DATA_DIR: directory,
            CAUSEWAY_PROFILES: profiles,
            ...env
          }),
          ({ code, stderr, stdout }) => {
            assert.strictEqual(existsSync(join(place, name)), code === 0, stderr)
            return { code, stderr, made: code === 0 ? JSON.parse(stdout.trim().split("\n").at(-1) ?? "") : undefined }
          }
        )

      const ofProfile = yield* backUp("profile.db", ["--profile", "prod"], { CAUSEWAY_TOKEN: "wrong" })
      assert.deepInclude(ofProfile, { code: 0 }, ofProfile.stderr)
      assert.deepInclude(ofProfile.made, { source: url, sessions: null })
      // The address of the option has the key of the profile, as that is of the same origin.
      const ofAddress = yield* backUp("address.db", ["--url", url], { CAUSEWAY_PROFILE: "prod" })
      assert.deepInclude(ofAddress.made, { source: url }, ofAddress.stderr)
      const elsewhere = yield* backUp("elsewhere.db", ["--url", url.replace("127.0.0.1", "localhost")], {
        CAUSEWAY_PROFILE: "prod"
      })
      assert.strictEqual(elsewhere.code, 5, elsewhere.stderr)

      const alone = yield* backUp("both", [], { CAUSEWAY_PROFILE: "prod" })
      assert.deepInclude(alone.made, { source: directory }, alone.stderr)
      assert.include(alone.stderr, "CAUSEWAY_PROFILE does not select a service; --profile does.")

      const contradiction = yield* backUp("two.db", ["--profile", "prod", "--data-dir", directory])
      assert.deepInclude(contradiction, { code: 2 })
      assert.include(contradiction.stderr, "--data-dir and --url or --profile exclude each other")
    }
  )
})

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
  test.scopedLive("leaves no file if it is interrupted while the disk does not answer", function* () {
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
})
