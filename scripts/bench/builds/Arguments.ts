import { resolve } from "node:path"
import { parseArgs } from "node:util"
import { Effect } from "effect"
import { BenchFailed } from "../BenchFailed.ts"

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

const text = { type: "string" } as const

const parse = (args: ReadonlyArray<string>) =>
  Effect.try({
    try: () =>
      parseArgs({
        args: [...args],
        allowPositionals: true,
        strict: true,
        options: {
          help: { type: "boolean", short: "h", default: false },
          processes: text,
          rounds: text,
          duration: text,
          "warm-up": text,
          profile: text
        }
      }),
    catch: error => new BenchFailed({ reason: error instanceof Error ? error.message : String(error) })
  })

const number = (name: keyof typeof usual, given: string | undefined, isWhole: boolean) => {
  if (given === undefined) return Effect.succeed(usual[name])
  const value = given.trim() === "" ? Number.NaN : Number(given)
  return value > 0 && value <= 3600 && (!isWhole || Number.isInteger(value))
    ? Effect.succeed(value)
    : new BenchFailed({ reason: `--${name} must be a positive ${isWhole ? "whole " : ""}number, not ${given}` })
}

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
    const { positionals, values } = yield* parse(args)
    if (values.help) return "help"
    const builds = positionals.filter(given => given.includes("=")).map(buildOf)
    if (builds.length === 0) return yield* new BenchFailed({ reason: "name at least one build: name=dist/main.js" })
    const cases = positionals.filter(given => !given.includes("="))
    const stranger = cases.find(name => !names.includes(name))
    if (stranger !== undefined) {
      return yield* new BenchFailed({ reason: `there is no case ${stranger}; there are ${names.join(", ")}` })
    }
    return {
      builds,
      names: cases.length === 0 ? names : cases,
      processes: yield* number("processes", values.processes, true),
      rounds: yield* number("rounds", values.rounds, true),
      seconds: yield* number("duration", values.duration, false),
      warmUpSeconds: yield* number("warm-up", values["warm-up"], false),
      profiles: values.profile
    }
  })
