/** Compares builds of the service with each other: `npm run bench -- builds --help`. */
import { Console, Effect, Layer, type Scope } from "effect"
import { table } from "../../docs/Markdown.ts"
import type { BenchFailed } from "../BenchFailed.ts"
import { compare, type Entrant, underLoad } from "../Compare.ts"
import { build } from "../Contender.ts"
import * as FanOut from "../cases/FanOut.ts"
import { median, type Series } from "../Findings.ts"
import { Plan, smallStore } from "../Plan.ts"
import { maxResidentBytes, pinGenerator } from "../Process.ts"
import * as Machine from "../report/Machine.ts"
import { micros, milliseconds } from "../report/Numbers.ts"
import { type Running, start } from "../Server.ts"
import * as Setup from "../Setup.ts"
import { scratch, startFilled } from "../Stores.ts"
import * as Workloads from "../Workloads.ts"
import * as Arguments from "./Arguments.ts"

interface Case {
  readonly name: string
  readonly title: string
  readonly unit: "requests" | "frames"
  readonly started: (contender: ReturnType<typeof build>) => Effect.Effect<Running, BenchFailed, Plan | Scope.Scope>
  readonly entrant: (running: Running) => Entrant
}

const cases: ReadonlyArray<Case> = [
  ...Workloads.all.map(
    ({ connections, name, requests, title }): Case => ({
      name,
      title,
      unit: "requests",
      started: contender => startFilled(contender, smallStore),
      entrant: running => underLoad(running, connections, requests())
    })
  ),
  {
    name: "fan-out",
    title: "changes to many WebSockets",
    unit: "frames",
    started: contender => Effect.flatMap(scratch, directory => start(contender, { directory })),
    entrant: running =>
      FanOut.broadcasting(running, FanOut.endOfLog(running), FanOut.writers, FanOut.writing(), () => {})
  }
]

const names = cases.map(({ name }) => name)

/** The processes of one build in a comparison. */
interface Result {
  readonly build: string
  readonly series: ReadonlyArray<Series>
  readonly maxBytes: ReadonlyArray<number>
}

const MiB = 1024 * 1024

const cpuOf = ({ samples }: Series): number => median(samples.map(({ cpuMicros }) => cpuMicros))

const p99Of = ({ samples }: Series): number | undefined => {
  const values = samples.flatMap(({ p99 }) => (p99 === undefined ? [] : [p99]))
  return values.length === 0 ? undefined : median(values)
}

const rowsOf = (title: string, results: ReadonlyArray<Result>): ReadonlyArray<ReadonlyArray<string>> => {
  const [base = Number.NaN] = results.map(({ series }) => median(series.map(cpuOf)))
  return results.map(({ build, maxBytes, series }, index) => {
    const each = series.map(cpuOf)
    const p99 = series.map(p99Of).filter(value => value !== undefined)
    const failures = series.reduce((sum, one) => sum + one.samples.reduce((of, { failures }) => of + failures, 0), 0)
    return [
      index === 0 ? title : "",
      build,
      (median(each) / base).toFixed(3),
      micros(median(each)),
      each.map(value => value.toPrecision(3)).join(" "),
      milliseconds(p99.length === 0 ? undefined : median(p99)),
      maxBytes.map(bytes => Math.round(bytes / MiB)).join(" "),
      String(failures)
    ]
  })
}

const head = ["case", "build", "CPU", "for each", "of each process", "p99", "MiB at most", "not 2xx"]

const measured = (one: Case, { builds, processes }: Arguments.Arguments) =>
  Effect.gen(function* () {
    // The processes of a build are not adjacent in a round.
    const wanted = Array.from({ length: processes }, () => builds).flat()
    const servers = yield* Effect.forEach(wanted, ({ file, name, node }) =>
      Effect.map(one.started(build(name, file, node)), running => ({ name, running }))
    )
    const entrants = servers.map(({ running }) => one.entrant(running))
    const { series } = yield* compare(one, entrants)
    const bytes = yield* Effect.forEach(servers, ({ running }) => maxResidentBytes(running.pid))
    const results = builds.map(({ name }): Result => {
      const isOfBuild = (_: unknown, index: number) => servers[index]?.name === name
      return { build: name, series: series.filter(isOfBuild), maxBytes: bytes.filter(isOfBuild) }
    })
    return rowsOf(one.title, results)
  }).pipe(Effect.scoped)

const measure = (given: Arguments.Arguments) =>
  Effect.gen(function* () {
    const { profiles, rounds, seconds, warmUpSeconds } = given
    const directory = yield* Setup.directory(undefined)
    const remarks = yield* Effect.sync(() => Machine.describe(directory))
    yield* pinGenerator
    const plan = { names: [], rounds, seconds, warmUpSeconds, entries: 0, service: "", directory, profiles }
    const wanted = cases.filter(({ name }) => given.names.includes(name))
    const rows = yield* Effect.forEach(wanted, one => measured(one, given)).pipe(
      Effect.provide(Layer.succeed(Plan, plan))
    )
    yield* Console.log([...remarks.map(remark => `- ${remark}`), "", table(head, rows.flat())].join("\n"))
  }).pipe(Effect.scoped)

/** Runs the comparison with the given arguments. */
export const main = (args: ReadonlyArray<string>): Effect.Effect<void, BenchFailed> =>
  Effect.flatMap(Arguments.read(args, names), given =>
    given === "help" ? Console.log(Arguments.help(names)) : measure(given)
  )
