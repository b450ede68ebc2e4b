/** Prints the files of `src` with functions that run for a request: `npm run paths`. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import * as Inspector from "./Inspector.ts"
import * as Requests from "./Requests.ts"
import * as Service from "./Service.ts"

const dist = fileURLToPath(new URL("../../dist/", import.meta.url))

/** The number of runs. A file counts if it was used in all of them; others were used by background work. */
const runs = 5

/** Requests before the first run, for all one-time work. */
const warmUp = 50

/** The time for work after the answer. */
const afterwards = "100 millis"

/** The source files with a function that runs in each run of a request. */
const filesOf = (coverage: Inspector.Coverage, request: Requests.Request) =>
  Effect.gen(function* () {
    yield* Effect.repeatN(request, warmUp)
    yield* Effect.sleep(afterwards)
    const one = coverage.take.pipe(
      Effect.zipRight(request),
      Effect.zipRight(Effect.sleep(afterwards)),
      Effect.zipRight(coverage.take)
    )
    const found = yield* Effect.forEach(Array.from({ length: runs }), () => one)
    const root = pathToFileURL(dist).href
    return [...(found[0] ?? [])]
      .filter(url => url.startsWith(root) && found.every(urls => urls.has(url)))
      .map(url => url.slice(root.length).replace(/\.js$/, ".ts"))
      .sort((a, b) => dirname(a).localeCompare(dirname(b)) || a.localeCompare(b))
  })

const print = (name: string, files: ReadonlyArray<string>) => {
  const folders = new Set(files.map(file => dirname(file))).size
  const lines = [`${name}: ${files.length} files in ${folders} folders`, ...files.map(file => `  ${file}`)]
  return Console.log(`${lines.join("\n")}\n`)
}

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "causeway-paths-"))),
  made => Effect.sync(() => rmSync(made, { recursive: true, force: true }))
)

const main = Effect.gen(function* () {
  const simulator = yield* Simulator.make()
  const service = yield* Service.start(join(dist, "main.js"), {
    DATA_DIR: yield* directory,
    AGENT_PLATFORM_URL: simulator.platformUrl,
    GATEWAY_JWT_SECRET: Requests.secret
  })
  // A busy disk can exceed the service's time limit for writes.
  const event = yield* Effect.retry(Requests.event(service, simulator), { times: 5 })
  const coverage = yield* Inspector.start(service.inspector)
  const requests = { ...Requests.store(service), "event of the platform": event }
  const idle = yield* filesOf(coverage, Effect.void)
  if (idle.length > 0) yield* print("without any request", idle)
  for (const [name, request] of Object.entries(requests)) yield* print(name, yield* filesOf(coverage, request))
}).pipe(Effect.scoped)

NodeRuntime.runMain(main)
