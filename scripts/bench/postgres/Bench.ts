/** The benchmark of nodes over one PostgreSQL: `npm run bench -- postgres --help`. */
import { Console, Effect, Layer } from "effect"
import type { BenchFailed } from "../BenchFailed.ts"
import { Plan } from "../Plan.ts"
import * as Machine from "../report/Machine.ts"
import * as Setup from "../Setup.ts"
import * as Workloads from "../Workloads.ts"
import * as Arguments from "./Arguments.ts"
import * as Contenders from "./Contenders.ts"
import * as Database from "./Database.ts"
import * as Measure from "./Measure.ts"
import * as Page from "./Page.ts"
import * as WakeUps from "./WakeUps.ts"

const kinds = [Contenders.two, Contenders.three, Contenders.one, Contenders.peer, Contenders.skippingPeer]

/** Connections that write while wake-ups are measured under load. */
const backgroundWriters = 16

const measure = (given: Arguments.Arguments) =>
  Effect.gen(function* () {
    const { connections, rounds, seconds, warmUpSeconds } = given
    const service = yield* Setup.service(given.service)
    const directory = yield* Setup.directory(undefined)
    const machine = yield* Effect.sync(() => Machine.describe(directory))
    const plan = { names: [], rounds, seconds, warmUpSeconds, entries: 0, service, directory, profiles: undefined }
    const database = yield* Database.start(directory)
    const found = yield* Effect.gen(function* () {
      const groups = yield* Effect.forEach(kinds, (kind, index) =>
        Effect.zipRight(
          Console.error(`Starting and filling ${kind.name} …`),
          Contenders.launch(kind, database, `bench_${index}`)
        )
      )
      const title = (what: string, of = connections) => `${what}, ${of} connections`
      const many = 4 * connections
      const nodes = groups.filter((_, index) => kinds[index]!.isService)
      return {
        put: yield* Measure.compare(title("PUT, durable"), database, groups, connections, Workloads.put.requests),
        putOfMany: yield* Measure.compare(title("PUT, durable", many), database, nodes, many, Workloads.put.requests),
        get: yield* Measure.compare(title("GET"), database, groups, connections, Workloads.get.requests),
        growth: yield* Measure.growth(database, groups[0]!, Workloads.put.requests),
        wakeUps: yield* WakeUps.measure(groups[0]!, backgroundWriters, Workloads.put.requests)
      }
    }).pipe(Effect.provide(Layer.succeed(Plan, plan)))
    const conditions = [
      ...machine.filter(line => !/^(?:Servers|Durability)/.test(line)),
      ...machine.filter(line => line.startsWith("Durability")).map(line => line.replace(/^.*, which/, "The disk")),
      `PostgreSQL ${database.version} on the same machine, with \`synchronous_commit = on\` and \`fsync = on\`.`,
      "Servers, PostgreSQL and the load generator share all processors."
    ]
    const date = yield* Setup.today
    const findings = { ...found, conditions }
    yield* Console.log(Page.print(findings, plan, date))
    if (given.writes) yield* Effect.sync(() => Page.write(findings, plan, date))
  }).pipe(Effect.scoped)

/** Runs the benchmark with the given arguments. */
export const main = (args: ReadonlyArray<string>): Effect.Effect<void, BenchFailed> =>
  Effect.flatMap(Arguments.read(args), given => (given === "help" ? Console.log(Arguments.help()) : measure(given)))
