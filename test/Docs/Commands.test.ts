/** The commands of the reference pages, against one service in development mode. */
import { existsSync } from "node:fs"
import { join } from "node:path"
import { it } from "@effect/vitest"
import { Effect } from "effect"
import { expect } from "vitest"
import { temporaryDirectory } from "../ServerProcess.ts"
import { type Block, blocksOf, shell } from "./Shell.ts"

/** It shows the positions of an empty log. */
const first = "docs/http-api.md"

/** They share the service and a directory, and nothing else. */
const others = ["docs/cli.md", "docs/how-to.md"]

const service: Block = {
  code: "npx causeway dev",
  isBackground: true,
  printed: { language: "text", text: "http://127.0.0.1:8080" }
}

const missing = ["awk", "curl", "jq", "openssl"].filter(
  name => !(process.env.PATH ?? "").split(":").some(directory => existsSync(join(directory, name)))
)
const reasonToSkip = missing.length > 0 ? `, skipped: no ${missing.join(", ")}` : ""

it.live.skipIf(reasonToSkip !== "")(
  `the commands of ${[first, ...others].join(", ")} do what the pages say, in the order of each${reasonToSkip}`,
  () =>
    Effect.gen(function* () {
      const { run } = yield* shell(yield* temporaryDirectory)
      yield* run(service)
      const runPage = (page: string) => Effect.scoped(Effect.forEach(blocksOf(page), run, { discard: true }))
      yield* runPage(first)
      yield* Effect.forEach(others, runPage, { concurrency: 2, discard: true })
    }).pipe(Effect.scoped)
)

/** Commands that want the service to be stopped. */
const isOffline = ({ code }: Block): boolean => / restore .*--force/.test(code)

it.live("docs/operations.md: its commands back a service up that runs, and restore it once it has stopped", () =>
  Effect.gen(function* () {
    // The service that tries the backup out listens at any free port.
    const { run } = yield* shell(yield* temporaryDirectory, { placed: { "PORT=8090": "PORT=0" } })
    const blocks = blocksOf("docs/operations.md")
    const [online, offline] = [blocks.filter(block => !isOffline(block)), blocks.filter(isOffline)]
    expect(offline).toHaveLength(2)
    const entry: Block = { code: "npx causeway kv set n k 1", isBackground: false, printed: undefined }
    yield* Effect.scoped(Effect.forEach([service, entry, ...online], run, { discard: true }))
    yield* Effect.forEach(offline, run, { discard: true })
  }).pipe(Effect.scoped)
)

it.live("docs/console.md: its command starts the service", () =>
  Effect.gen(function* () {
    const { run } = yield* shell(yield* temporaryDirectory)
    yield* Effect.forEach(blocksOf("docs/console.md"), run, { discard: true })
  }).pipe(Effect.scoped)
)
