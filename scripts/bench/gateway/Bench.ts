/** The benchmark of the gateway: `npm run bench -- gateway --help`. */
import { Console, Effect, Layer } from "effect"
import type { BenchFailed } from "../BenchFailed.ts"
import { Plan } from "../Plan.ts"
import { pinGenerator } from "../Process.ts"
import * as Machine from "../report/Machine.ts"
import * as Setup from "../Setup.ts"
import * as Arguments from "./Arguments.ts"
import type { Transport } from "./Clients.ts"
import type { Processors } from "./Gateway.ts"
import * as Idle from "./Idle.ts"
import * as Page from "./Page.ts"
import * as Reopen from "./Reopen.ts"
import * as Streaming from "./Streaming.ts"

const measure = (given: Arguments.Arguments) =>
  Effect.gen(function* () {
    const { before, clients, profiles, rate, seconds, turns, warmUpSeconds } = given
    const service = yield* Setup.service(given.service)
    const directory = yield* Setup.directory(undefined)
    const conditions = yield* Effect.sync(() => Machine.describe(directory))
    yield* pinGenerator
    const plan = { names: [], rounds: 1, seconds, warmUpSeconds, entries: 0, service, directory, profiles }
    const load = { clients, rate, seconds, warmUpSeconds }
    const half = Math.ceil(turns / 2)
    type Case = readonly [
      turns: number,
      processors: Processors,
      transport: Transport,
      agents?: Streaming.Load["agents"]
    ]
    const loads: ReadonlyArray<Case> = [
      [half, "one", "WebSocket"],
      [half, "one", "WebSocket", "AG-UI"],
      [half, "one", "event stream"],
      [half, "both", "WebSocket"],
      [turns, "one", "WebSocket"],
      [turns, "one", "event stream"],
      [turns, "both", "WebSocket"]
    ]
    const streamed = ([turns, processors, transport, agents = "platform"]: Case) =>
      Streaming.run({ ...load, turns, processors, transport, agents })
    const found = yield* Effect.all({
      reopened: Reopen.run,
      idle: Idle.run(clients),
      before:
        before === undefined
          ? Effect.succeedNone
          : Effect.asSome(Effect.provideService(streamed(loads[0]!), Plan, { ...plan, service: before })),
      streamed: Effect.forEach(loads, streamed)
    }).pipe(Effect.provide(Layer.succeed(Plan, plan)))
    const date = yield* Setup.today
    const findings = { ...found, conditions }
    yield* Console.log(Page.print(findings, date))
    if (given.writes) yield* Effect.sync(() => Page.write(findings, date))
  }).pipe(Effect.scoped)

/** Runs the benchmark with the given arguments. */
export const main = (args: ReadonlyArray<string>): Effect.Effect<void, BenchFailed> =>
  Effect.flatMap(Arguments.read(args), given => (given === "help" ? Console.log(Arguments.help()) : measure(given)))
