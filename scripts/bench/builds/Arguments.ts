import { resolve } from "node:path"
import { Effect } from "effect"
import { BenchFailed } from "../BenchFailed.ts"
import { flag, number, parse, requireKnown, text } from "../Options.ts"

/** A build of the service. */
export interface Build {
  readonly name: string
  /** Its compiled `main.js`. */
  readonly file: string
  /** The node that runs it; default the one that runs the benchmark. */
  readonly node: string | undefined
}

/** The arguments of the comparison of builds. */
export interface Arguments {
  readonly builds: ReadonlyArray<Build>
  readonly names: ReadonlyArray<string>
  readonly processes: number
  readonly rounds: number
  readonly seconds: number
  readonly warmUpSeconds: number
  readonly profiles: string | undefined
}

const usual = { processes: 3, rounds: 5, duration: 1, "warm-up": 3 } as const

/** The text of `--help`. */
export const help = (names: ReadonlyArray<string>): string =>
  [
    "Compares builds of the service: CPU for each request, relative to the first build.",
    "",
    "Usage: npm run bench -- builds [options] name=main.js[@node] name=main.js[@node] … [case …]",
    "",
    `  --processes n       processes of each build, since equal processes differ; default ${usual.processes}`,
    `  --rounds n          rounds of each comparison; default ${usual.rounds}`,
    `  --duration s        seconds of each measurement; default ${usual.duration}`,
    `  --warm-up s         seconds of load before the first; default ${usual["warm-up"]}`,
    "  --profile directory writes CPU profiles into this directory",
    "  --help              prints this text",
    "",
    "TMPDIR names the directory of the stores. On tmpfs the disk takes no part in the comparison.",
    "",
    `Cases: ${names.join(", ")}`
  ].join("\n")

const count = { min: 1, max: 1000, whole: true } as const
const seconds = { min: 0.1, max: 3600, whole: false } as const

const buildOf = (given: string): Build => {
  const at = given.indexOf("=")
  const [file, node] = given.slice(at + 1).split("@", 2)
  return { name: given.slice(0, at), file: resolve(file ?? ""), node }
}

/** Reads the arguments. Returns `"help"` for `--help`. */
export const read = (
  args: ReadonlyArray<string>,
  names: ReadonlyArray<string>
): Effect.Effect<Arguments | "help", BenchFailed> =>
  Effect.gen(function* () {
    const { positionals, values } = yield* parse({
      args: [...args],
      allowPositionals: true,
      options: {
        help: { ...flag, short: "h" },
        processes: text,
        rounds: text,
        duration: text,
        "warm-up": text,
        profile: text
      }
    })
    if (values.help) return "help"
    const builds = positionals.filter(given => given.includes("=")).map(buildOf)
    if (builds.length === 0) return yield* new BenchFailed({ reason: "name at least one build: name=dist/main.js" })
    const cases = positionals.filter(given => !given.includes("="))
    yield* requireKnown(cases, names)
    return {
      builds,
      names: cases.length === 0 ? names : cases,
      processes: yield* number("processes", values.processes, usual.processes, count),
      rounds: yield* number("rounds", values.rounds, usual.rounds, count),
      seconds: yield* number("duration", values.duration, usual.duration, seconds),
      warmUpSeconds: yield* number("warm-up", values["warm-up"], usual["warm-up"], seconds),
      profiles: values.profile
    }
  })
