import { Effect } from "effect"
import type { BenchFailed } from "./BenchFailed.ts"
import type { Case } from "./Case.ts"
import { flag, number, parse, requireKnown, text } from "./Options.ts"

/** The arguments of the benchmark. */
export interface Arguments {
  readonly names: ReadonlyArray<string>
  readonly rounds: number
  readonly seconds: number
  readonly warmUpSeconds: number
  readonly entries: number
  readonly service: string | undefined
  readonly store: string | undefined
  readonly profiles: string | undefined
  /** Whether this is a full run, whose findings are written into the page. */
  readonly isFull: boolean
}

const usual = { rounds: 5, duration: 5, "warm-up": 5, entries: 1_000_000 } as const
const quick = { rounds: 3, duration: 1, "warm-up": 2, entries: 100_000 } as const

/** The text of `--help`. */
export const help = (cases: ReadonlyArray<Case>): string =>
  [
    "Benchmarks the service and its peers.",
    "",
    "Usage: npm run bench -- [options] [case …]",
    "",
    `  --quick             ${quick.rounds} rounds of ${quick.duration} s, ${quick.entries.toLocaleString("en")} entries: for a quick check`,
    `  --rounds n          rounds of each comparison; default ${usual.rounds}`,
    `  --duration s        seconds of each measurement; default ${usual.duration}`,
    `  --warm-up s         seconds of load before the first; default ${usual["warm-up"]}`,
    `  --entries n         entries of the large store; default ${usual.entries.toLocaleString("en")}`,
    "  --store directory   keeps the large store in this directory for the next run",
    "  --service file      the compiled service; default dist/main.js, which is built first",
    "  --profile directory writes CPU profiles of the service into this directory",
    "  --help              prints this text",
    "",
    "Cases:",
    ...cases.map(({ about, name }) => `  ${name.padEnd(20)}${about}`),
    "",
    "The gateway has its own benchmark: npm run bench -- gateway --help.",
    "Builds of the service are compared by: npm run bench -- builds --help.",
    "Nodes over one PostgreSQL are measured by: npm run bench -- postgres --help.",
    "",
    "A run of all cases without --quick and --profile writes docs/reference/performance.md; other runs only print."
  ].join("\n")

const bounds = {
  rounds: { min: 1, max: 1000, whole: true },
  duration: { min: 0.1, max: 3600, whole: false },
  "warm-up": { min: 0.1, max: 3600, whole: false },
  entries: { min: 10_000, max: 100_000_000, whole: true }
} as const

/** Reads the arguments. Returns `"help"` for `--help`. */
export const read = (
  args: ReadonlyArray<string>,
  cases: ReadonlyArray<Case>
): Effect.Effect<Arguments | "help", BenchFailed> =>
  Effect.gen(function* () {
    const { positionals, values } = yield* parse({
      args: [...args],
      allowPositionals: true,
      options: {
        help: { ...flag, short: "h" },
        quick: flag,
        rounds: text,
        duration: text,
        "warm-up": text,
        entries: text,
        store: text,
        service: text,
        profile: text
      }
    })
    if (values.help) return "help"
    yield* requireKnown(
      positionals,
      cases.map(({ name }) => name)
    )
    const defaults = values.quick ? quick : usual
    return {
      names: positionals,
      rounds: yield* number("rounds", values.rounds, defaults.rounds, bounds.rounds),
      seconds: yield* number("duration", values.duration, defaults.duration, bounds.duration),
      warmUpSeconds: yield* number("warm-up", values["warm-up"], defaults["warm-up"], bounds["warm-up"]),
      entries: yield* number("entries", values.entries, defaults.entries, bounds.entries),
      service: values.service,
      store: values.store,
      profiles: values.profile,
      isFull: positionals.length === 0 && !values.quick && values.profile === undefined
    }
  })
