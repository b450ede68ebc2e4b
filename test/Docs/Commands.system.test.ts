/** The commands of the reference pages, against one service in development mode. */
import { existsSync } from "node:fs"
import { join } from "node:path"
import { it } from "@effect/vitest"
import { Effect, Option } from "effect"
import { describe, expect } from "vitest"
import { Store, sqlite } from "../../src/exports/store.ts"
import { freePort } from "../postgres/Server.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { type Block, blocksOf, shell } from "./Shell.ts"

/** It shows the positions of an empty log. */
const first = "docs/reference/http-api.md"

/** They share the service and a directory, and nothing else. */
const others = ["docs/use/cli.md", "docs/use/how-to.md", "docs/use/sessions-http.md"]

const service: Block = {
  code: "npx causewayd dev",
  isBackground: true,
  printed: { language: "text", text: "…dev mode, at http://127.0.0.1:8080" }
}

const missing = ["awk", "curl", "jq", "openssl"].filter(
  name => !(process.env.PATH ?? "").split(":").some(directory => existsSync(join(directory, name)))
)
const reasonToSkip = missing.length > 0 ? `, skipped: no ${missing.join(", ")}` : ""

/** Commands that want the service to be stopped. */
const isOffline = ({ code }: Block): boolean => / restore .*--force/.test(code)

/** What an entry is in the store of a directory, which no service uses. */
const valueIn = (directory: string) =>
  Effect.flatMap(Store.Store, ({ get }) => get("n", "k")).pipe(
    Effect.map(Option.map(({ value }) => value)),
    Effect.provide(sqlite(directory))
  )

// Most of the time goes into starts of processes.
describe.concurrent("the commands of pages", () => {
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

  it.live(
    "docs/operate/operations.md: its commands back a service up that runs, and restore it once it has stopped",
    () =>
      Effect.gen(function* () {
        const port = yield* Effect.promise(freePort)
        const directory = yield* temporaryDirectory
        const { run } = yield* shell(directory, { placed: { "PORT=8090": `PORT=${port}` } })
        const blocks = blocksOf("docs/operate/operations.md")
        const [online, offline] = [blocks.filter(block => !isOffline(block)), blocks.filter(isOffline)]
        const set = (value: number): Block => ({
          code: `npx causewayd kv set n k ${value}`,
          isBackground: false,
          printed: undefined
        })
        yield* Effect.scoped(
          Effect.gen(function* () {
            yield* Effect.forEach([service, set(1), ...online, set(2)], run, { discard: true })
            // The service that tries the backup out.
            const headers = { authorization: "Bearer test" }
            const answer = yield* Effect.promise(() => fetch(`http://127.0.0.1:${port}/api/v1/kv/n/k`, { headers }))
            expect(yield* Effect.promise(() => answer.json())).toMatchObject({ value: 1 })
          })
        )
        const values = yield* Effect.forEach(offline, block =>
          Effect.zipRight(run(block), valueIn(join(directory, "data")))
        )
        // What the backup has, and what there was before it was restored.
        expect(values).toEqual([Option.some("1"), Option.some("2")])
      }).pipe(Effect.scoped)
  )

  it.live("docs/operate/console.md: its command starts the service", () =>
    Effect.gen(function* () {
      const { run } = yield* shell(yield* temporaryDirectory)
      yield* Effect.forEach(blocksOf("docs/operate/console.md"), run, { discard: true })
    }).pipe(Effect.scoped)
  )
})
