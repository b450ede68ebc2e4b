/** The benchmark of the gateway: `npm run bench -- gateway --help`. */
import { execFileSync } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { loadavg, tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import { Clock, Console, Effect, Layer } from "effect"
import { BenchFailed } from "../BenchFailed.ts"
import { Plan } from "../Plan.ts"
import { pinGenerator } from "../Process.ts"
import * as Machine from "../report/Machine.ts"
import * as Arguments from "./Arguments.ts"
import type { Processors } from "./Gateway.ts"
import * as Idle from "./Idle.ts"
import * as Page from "./Page.ts"
import * as Streaming from "./Streaming.ts"

const root = fileURLToPath(new URL("../../..", import.meta.url))

const build = Effect.try({
  try: () => {
    execFileSync("npm", ["run", "--silent", "build"], { cwd: root, stdio: "inherit" })
    return join(root, "dist/main.js")
  },
  catch: () => new BenchFailed({ reason: "the service cannot be built" })
})

const directoryOf = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "causeway-bench-"))),
  made => Effect.sync(() => rmSync(made, { recursive: true, force: true }))
)

/** What others do on the machine spoils figures, and is said beside them. */
const unrest = (): ReadonlyArray<string> => {
  const [, load = 0] = loadavg()
  return load < 0.5
    ? []
    : [`The machine was not idle: its load average over the five minutes before was ${load.toFixed(1)}.`]
}

const measure = (given: Arguments.Arguments) =>
  Effect.gen(function* () {
    const { clients, profiles, rate, seconds, turns, warmUpSeconds } = given
    const service = given.service === undefined ? yield* build : resolve(given.service)
    const directory = yield* directoryOf
    const conditions = yield* Effect.sync(() => [...Machine.describe(directory), ...unrest()])
    yield* pinGenerator
    const plan = { names: [], rounds: 1, seconds, warmUpSeconds, entries: 0, service, directory, profiles }
    const load = { clients, rate, seconds, warmUpSeconds }
    const loads: ReadonlyArray<readonly [turns: number, processors: Processors]> = [
      [Math.ceil(turns / 2), "one"],
      [Math.ceil(turns / 2), "both"],
      [turns, "one"],
      [turns, "both"]
    ]
    const found = yield* Effect.all({
      idle: Idle.run(clients),
      streamed: Effect.forEach(loads, ([turns, processors]) => Streaming.run({ ...load, turns, processors }))
    }).pipe(Effect.provide(Layer.succeed(Plan, plan)))
    const date = new Date(yield* Clock.currentTimeMillis).toISOString().slice(0, 10)
    const findings = { ...found, conditions }
    yield* Console.log(Page.print(findings, date))
    if (given.writes) yield* Effect.sync(() => Page.write(findings, date))
  }).pipe(Effect.scoped)

/** Measures as the arguments say. */
export const main = (args: ReadonlyArray<string>): Effect.Effect<void, BenchFailed> =>
  Effect.flatMap(Arguments.read(args), given => (given === "help" ? Console.log(Arguments.help()) : measure(given)))
