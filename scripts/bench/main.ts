/** Benchmarks the service and its peers: `npm run bench -- --help`. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect, Layer, type Scope } from "effect"
import * as Arguments from "./Arguments.ts"
import type { BenchFailed } from "./BenchFailed.ts"
import * as Builds from "./builds/Bench.ts"
import { all } from "./cases/All.ts"
import * as Findings from "./Findings.ts"
import * as Gateway from "./gateway/Bench.ts"
import { Plan, type PlanShape } from "./Plan.ts"
import { pinGenerator } from "./Process.ts"
import * as Postgres from "./postgres/Bench.ts"
import * as Machine from "./report/Machine.ts"
import * as Page from "./report/Page.ts"
import * as Setup from "./Setup.ts"

const planOf = (given: Arguments.Arguments): Effect.Effect<PlanShape, BenchFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const { entries, names, profiles, rounds, seconds, warmUpSeconds } = given
    const service = yield* Setup.service(given.service)
    const directory = yield* Setup.directory(given.store)
    return { names, rounds, seconds, warmUpSeconds, entries, service, directory, profiles }
  })

const measure = (given: Arguments.Arguments) =>
  Effect.gen(function* () {
    const plan = yield* planOf(given)
    const before = yield* Effect.sync(
      (): Findings.Findings => ({ ...Findings.none, remarks: Machine.describe(plan.directory) })
    )
    yield* pinGenerator
    const wanted = all.filter(({ name }) => plan.names.length === 0 || plan.names.includes(name))
    // Each case starts its own servers.
    const findings = yield* Effect.reduce(wanted, before, (sum, { run }) =>
      Effect.map(Effect.scoped(run), found => Findings.merge(sum, found))
    ).pipe(Effect.provide(Layer.succeed(Plan, plan)))
    const date = yield* Setup.today
    yield* Console.log(Page.print(findings, plan, date, false))
    if (given.isFull) yield* Effect.sync(() => Page.write(findings, plan, date))
  }).pipe(Effect.scoped)

const service = (args: ReadonlyArray<string>) =>
  Effect.flatMap(Arguments.read(args, all), given =>
    given === "help" ? Console.log(Arguments.help(all)) : measure(given)
  )

const [first, ...rest] = process.argv.slice(2)

const others: Readonly<Record<string, typeof Gateway.main>> = {
  gateway: Gateway.main,
  builds: Builds.main,
  postgres: Postgres.main
}

const main = (others[first ?? ""]?.(rest) ?? service(process.argv.slice(2))).pipe(
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
