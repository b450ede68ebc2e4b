/**
 * Prints the files of `src` with functions that run for a request, on SQLite and on PostgreSQL: `npm run paths`. It
 * compiles the sources into a directory of its own.
 */
import { execFileSync } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import * as Server from "../../test/postgres/Server.ts"
import * as Inspector from "./Inspector.ts"
import * as Requests from "./Requests.ts"
import * as Service from "./Service.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))

/** The directory of the compiled sources. Node finds the packages that they import above it. */
const compiled = join(root, "node_modules/.cache/causeway-paths/")

const compile = Effect.sync(() => {
  rmSync(compiled, { recursive: true, force: true })
  execFileSync("tsc", ["-p", "scripts/tsconfig.build.json", "--outDir", compiled], { cwd: root, stdio: "inherit" })
})

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
    const base = pathToFileURL(compiled).href
    return [...(found[0] ?? [])]
      .filter(url => url.startsWith(base) && found.every(urls => urls.has(url)))
      .map(url => url.slice(base.length).replace(/\.js$/, ".ts"))
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

/** The address of a new PostgreSQL server, which runs until the scope closes. */
const postgres = Effect.flatMap(directory, made =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(async () => {
        const cluster = join(made, "cluster")
        Server.initialize(cluster)
        return Server.start(cluster, await Server.freePort(), {})
      }),
      server => Effect.promise(() => server.stop("immediate"))
    ),
    server => server.urlOf("postgres")
  )
)

/** Prints the files of a service with a store. */
const trace = (backend: string, store: Readonly<Record<string, string>>) =>
  Effect.gen(function* () {
    const simulator = yield* Simulator.make()
    const service = yield* Service.start(join(compiled, "main.js"), {
      DATA_DIR: yield* directory,
      AGENT_PLATFORM_URL: simulator.platformUrl,
      GATEWAY_JWT_SECRET: Requests.secret,
      ...store
    })
    // A busy disk can exceed the service's time limit for writes.
    const event = yield* Effect.retry(Requests.event(service, simulator), { times: 5 })
    const coverage = yield* Inspector.start(service.inspector)
    const requests = { ...Requests.store(service), "event of the platform": event }
    const idle = yield* filesOf(coverage, Effect.void)
    if (idle.length > 0) yield* print(`${backend}, without any request`, idle)
    for (const [name, request] of Object.entries(requests)) {
      yield* print(`${backend}, ${name}`, yield* filesOf(coverage, request))
    }
  }).pipe(Effect.scoped)

const main = Effect.gen(function* () {
  yield* compile
  yield* trace("SQLite", {})
  if (Server.reasonToSkip !== undefined) return yield* Console.log(`PostgreSQL: ${Server.reasonToSkip}`)
  yield* trace("PostgreSQL", { STORE_URL: yield* postgres })
}).pipe(Effect.scoped)

NodeRuntime.runMain(main)
