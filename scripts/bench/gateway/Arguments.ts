import { Effect } from "effect"
import type { BenchFailed } from "../BenchFailed.ts"
import { flag, number, parse, text } from "../Options.ts"

/** The arguments of the gateway's benchmark. */
export interface Arguments {
  readonly clients: number
  readonly turns: number
  readonly rate: number
  readonly seconds: number
  readonly warmUpSeconds: number
  readonly service: string | undefined
  /** An earlier build, which the smaller load is compared with. */
  readonly before: string | undefined
  readonly profiles: string | undefined
  /** Whether the findings are written into the page. */
  readonly writes: boolean
}

const usual = { clients: 2000, turns: 500, rate: 20, duration: 60, "warm-up": 15 } as const
const quick = { clients: 200, turns: 50, rate: 20, duration: 5, "warm-up": 3 } as const

/** The text of `--help`. */
export const help = (): string =>
  [
    "Benchmarks the gateway between a minimal platform and many clients.",
    "",
    "Usage: npm run bench -- gateway [options]",
    "",
    `  --quick             ${quick.clients} clients, ${quick.turns} turns, ${quick.duration} s: for a quick check`,
    `  --clients n         connected clients, each with a session; default ${usual.clients}`,
    `  --turns n           turns in progress, half of them in the smaller load; default ${usual.turns}`,
    `  --rate n            deltas of each turn in a second; default ${usual.rate}`,
    `  --duration s        seconds of each measurement; default ${usual.duration}`,
    `  --warm-up s         seconds of load before it; default ${usual["warm-up"]}`,
    "  --service file      the compiled service; default dist/main.js, which is built first",
    "  --before file       an earlier compiled service, with which the smaller load is compared",
    "  --profile directory writes CPU profiles of the service into this directory",
    "  --print             prints and does not write docs/reference/performance-gateway.md; --quick implies it",
    "  --help              prints this text"
  ].join("\n")

const count = (max: number) => ({ min: 1, max, whole: true })

/** Reads the arguments. Returns `"help"` for `--help`. */
export const read = (args: ReadonlyArray<string>): Effect.Effect<Arguments | "help", BenchFailed> =>
  Effect.gen(function* () {
    const { values } = yield* parse({
      args: [...args],
      options: {
        help: { ...flag, short: "h" },
        quick: flag,
        print: flag,
        clients: text,
        turns: text,
        rate: text,
        duration: text,
        "warm-up": text,
        service: text,
        before: text,
        profile: text
      }
    })
    if (values.help) return "help"
    const defaults = values.quick ? quick : usual
    const clients = yield* number("clients", values.clients, defaults.clients, count(50_000))
    const turns = yield* number("turns", values.turns, Math.min(clients, defaults.turns), count(clients))
    return {
      clients,
      turns,
      rate: yield* number("rate", values.rate, defaults.rate, count(1000)),
      seconds: yield* number("duration", values.duration, defaults.duration, count(3600)),
      warmUpSeconds: yield* number("warm-up", values["warm-up"], defaults["warm-up"], count(600)),
      service: values.service,
      before: values.before,
      profiles: values.profile,
      writes: !values.quick && !values.print && values.profile === undefined
    }
  })
