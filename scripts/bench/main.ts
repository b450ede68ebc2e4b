/** Measures the service beside its peers: `npm run bench -- --help`. */
import { execFileSync } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync } from "node:fs"
import { loadavg, tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Clock, Console, Effect, Layer, type Scope } from "effect"
import * as Arguments from "./Arguments.ts"
import { BenchFailed } from "./BenchFailed.ts"
import { all } from "./cases/All.ts"
import * as Findings from "./Findings.ts"
import * as Gateway from "./gateway/Bench.ts"
import { Plan, type PlanShape } from "./Plan.ts"
import { pinGenerator } from "./Process.ts"
import * as Machine from "./report/Machine.ts"
import * as Page from "./report/Page.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))

const build = Effect.try({
  try: () => {
    execFileSync("npm", ["run", "--silent", "build"], { cwd: root, stdio: "inherit" })
    return join(root, "dist/main.js")
  },
  catch: () => new BenchFailed({ reason: "the service cannot be built" })
})

const directoryOf = ({ store }: Arguments.Arguments): Effect.Effect<string, never, Scope.Scope> =>
  store === undefined
    ? Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(join(tmpdir(), "causeway-bench-"))),
        made => Effect.sync(() => rmSync(made, { recursive: true, force: true }))
      )
    : Effect.sync(() => {
        mkdirSync(store, { recursive: true })
        return resolve(store)
      })

const planOf = (given: Arguments.Arguments): Effect.Effect<PlanShape, BenchFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const { entries, names, profiles, rounds, seconds, warmUpSeconds } = given
    const service = given.service === undefined ? yield* build : resolve(given.service)
    const directory = yield* directoryOf(given)
    return { names, rounds, seconds, warmUpSeconds, entries, service, directory, profiles }
  })

/** The machine as it is before anything is measured; what others do on it spoils figures, and is said beside them. */
const machine = (directory: string) =>
  Effect.sync((): Findings.Findings => {
    const [, load = 0] = loadavg()
    const unrest = `The machine was not idle: its load average over the five minutes before was ${load.toFixed(1)}.`
    return { ...Findings.none, remarks: [...Machine.describe(directory), ...(load < 0.5 ? [] : [unrest])] }
  })

const measure = (given: Arguments.Arguments) =>
  Effect.gen(function* () {
    const plan = yield* planOf(given)
    const before = yield* machine(plan.directory)
    yield* pinGenerator
    const wanted = all.filter(({ name }) => plan.names.length === 0 || plan.names.includes(name))
    // Each case has its servers to itself.
    const findings = yield* Effect.reduce(wanted, before, (sum, { run }) =>
      Effect.map(Effect.scoped(run), found => Findings.merge(sum, found))
    ).pipe(Effect.provide(Layer.succeed(Plan, plan)))
    const date = new Date(yield* Clock.currentTimeMillis).toISOString().slice(0, 10)
    yield* Console.log(Page.print(findings, plan, date, false))
    if (given.isFull) yield* Effect.sync(() => Page.write(findings, plan, date))
  }).pipe(Effect.scoped)

const service = (args: ReadonlyArray<string>) =>
  Effect.flatMap(Arguments.read(args, all), given =>
    given === "help" ? Console.log(Arguments.help(all)) : measure(given)
  )

const [first, ...rest] = process.argv.slice(2)

const main = (first === "gateway" ? Gateway.main(rest) : service(process.argv.slice(2))).pipe(
  Effect.catchTag("BenchFailed", ({ message }) =>
    Effect.zipRight(
      Console.error(message),
      Effect.sync(() => {
        process.exitCode = 1
      })
    )
  )
)

NodeRuntime.runMain(main, { disablePrettyLogger: true })
