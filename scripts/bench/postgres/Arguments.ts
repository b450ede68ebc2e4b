import { Effect } from "effect"
import type { BenchFailed } from "../BenchFailed.ts"
import { flag, number, parse, text } from "../Options.ts"

/** The arguments of the benchmark on PostgreSQL. */
export interface Arguments {
  readonly rounds: number
  readonly seconds: number
  readonly warmUpSeconds: number
  readonly connections: number
  readonly service: string | undefined
  /** Whether the findings are written into the page. */
  readonly writes: boolean
}

const usual = { rounds: 5, duration: 5, "warm-up": 5, connections: 64 } as const
const quick = { rounds: 2, duration: 1, "warm-up": 1, connections: 64 } as const

/** The text of `--help`. */
export const help = (): string =>
  [
    "Benchmarks nodes over one PostgreSQL, and a peer. It starts its own PostgreSQL.",
    "",
    "Usage: npm run bench -- postgres [options]",
    "",
    `  --quick             ${quick.rounds} rounds of ${quick.duration} s: for a quick check`,
    `  --rounds n          rounds of each comparison; default ${usual.rounds}`,
    `  --duration s        seconds of each measurement; default ${usual.duration}`,
    `  --warm-up s         seconds of load before the first; default ${usual["warm-up"]}`,
    `  --connections n     connections of the load generator; default ${usual.connections}`,
    "  --service file      the compiled service; default dist/main.js, which is built first",
    "  --print             prints and does not write docs/reference/performance-postgresql.md; --quick implies it",
    "  --help              prints this text"
  ].join("\n")

const most = { min: 1, max: 3600, whole: true } as const

/** Reads the arguments. Returns `"help"` for `--help`. */
export const read = (args: ReadonlyArray<string>): Effect.Effect<Arguments | "help", BenchFailed> =>
  Effect.gen(function* () {
    const { values } = yield* parse({
      args: [...args],
      options: {
        help: { ...flag, short: "h" },
        quick: flag,
        print: flag,
        rounds: text,
        duration: text,
        "warm-up": text,
        connections: text,
        service: text
      }
    })
    if (values.help) return "help"
    const defaults = values.quick ? quick : usual
    return {
      rounds: yield* number("rounds", values.rounds, defaults.rounds, most),
      seconds: yield* number("duration", values.duration, defaults.duration, most),
      warmUpSeconds: yield* number("warm-up", values["warm-up"], defaults["warm-up"], most),
      connections: yield* number("connections", values.connections, defaults.connections, most),
      service: values.service,
      writes: !values.quick && !values.print
    }
  })
