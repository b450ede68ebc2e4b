/** The configuration of the process, read as a whole, so that all errors are reported together. */
import { Config, ConfigError, type ConfigProvider, Effect, Either, HashSet, Option, Redacted, Schema } from "effect"
import * as Limits from "../base/Limits.ts"
import * as Logging from "../base/Observability/Logging.ts"
import * as Tracer from "../base/Observability/Tracer.ts"
import * as ShutdownDeadline from "../base/Process/ShutdownDeadline.ts"
import * as Setting from "../base/Setting.ts"
import { distance } from "../CommandLine/Arguments.ts"
import * as Authentication from "../Gateway/Authentication.ts"
import * as Gateway from "../Gateway/Gateway.ts"
import * as Auth from "../Http/Auth/Auth.ts"
import * as ConnectionLimits from "../Http/ConnectionLimits.ts"
import * as Cors from "../Http/Cors.ts"
import { isLoopback } from "../Http/Origin.ts"
import * as NodeServer from "../Http/Server/NodeServer.ts"
import * as ChangeFeed from "../Kv/ChangeFeed.ts"
import * as MetricsRoutes from "../Operations/Metrics/Endpoints.ts"
import * as Pages from "../Operations/Pages/Endpoints.ts"
import * as Housekeeping from "../Storage/Housekeeping.ts"
import * as Replication from "../Storage/Sqlite/Replication.ts"
import * as StoreUrl from "../Storage/StoreUrl.ts"
import * as AgentPlatform from "../Upstream/AgentPlatform.ts"
import * as Agents from "../Upstream/AgUiAgent/Settings.ts"
import * as Inference from "../Upstream/Inference.ts"

/** The credentials of dev mode if none are set. */
export const developmentKeys = { write: "dev-key", read: "dev-agent-key" } as const

const Problem = Schema.Struct({ variable: Schema.String, problem: Schema.String })

/** An error of one variable. */
export type Problem = typeof Problem.Type

/** One or more variables are invalid; the message names each. */
export class ConfigurationInvalid extends Schema.TaggedError<ConfigurationInvalid>()("ConfigurationInvalid", {
  problems: Schema.Array(Problem)
}) {
  override get message(): string {
    const lines = this.problems.map(({ variable, problem }) => `  ${variable}: ${problem}`)
    return ["The configuration is wrong:", ...lines, "causeway serve --help lists all variables."].join("\n")
  }
}

const mode = Config.all({
  wanted: Setting.boolean("DEV_MODE", {
    description: "Readable logs, development keys and /api/metrics; never together with NODE_ENV=production",
    default: false
  }),
  nodeEnv: Setting.string("NODE_ENV", { description: "production turns dev mode off", default: "" })
}).pipe(
  Config.map(({ wanted, nodeEnv }) => ({
    devMode: wanted && nodeEnv !== "production",
    devModeRefused: wanted && nodeEnv === "production"
  }))
)

const redacted = (key: string): Option.Option<Redacted.Redacted> => Option.some(Redacted.make(key))

const sameKey = Option.getEquivalence<Redacted.Redacted>((a, b) => Redacted.value(a) === Redacted.value(b))

const credentials = (devMode: boolean, keys: Auth.Keys): Either.Either<Auth.Keys, ConfigError.ConfigError> => {
  const effective: Auth.Keys = devMode
    ? {
        write: Option.orElse(keys.write, () => redacted(developmentKeys.write)),
        read: Option.orElse(keys.read, () => redacted(developmentKeys.read))
      }
    : keys
  if (Option.isNone(effective.write)) {
    return Either.left(ConfigError.InvalidData(["KV_API_KEY"], "it must be set, unless DEV_MODE is true"))
  }
  return sameKey(effective.write, effective.read)
    ? Either.left(ConfigError.InvalidData(["KV_AGENT_API_KEY"], "it only reads, so it must differ from KV_API_KEY"))
    : Either.right(effective)
}

const settings = Config.all({
  mode,
  address: NodeServer.config,
  connectionLimits: ConnectionLimits.config,
  origins: Cors.config,
  store: StoreUrl.config,
  keys: Auth.config,
  logLevel: Logging.config,
  collector: Tracer.config,
  metrics: MetricsRoutes.config,
  pages: Pages.config,
  limits: Limits.config,
  followLimits: ChangeFeed.config,
  retention: Housekeeping.config,
  agentPlatform: AgentPlatform.config,
  agents: Agents.config,
  inference: Inference.config,
  replication: Replication.config,
  gateway: Gateway.config,
  shutdownTimeout: ShutdownDeadline.config
})

const checkedKeys = Config.all({ mode, keys: Auth.config }).pipe(
  Config.mapOrFail(({ mode, keys }) => credentials(mode.devMode, keys))
)

/** A session has one agent: of the platform, or by AG-UI. */
const checkedAgents = Config.all({ agents: Agents.config, platform: AgentPlatform.config }).pipe(
  Config.mapOrFail(({ agents, platform }) => {
    if (Option.isNone(platform.url) || !Agents.isSet(agents)) return Either.right(undefined)
    const name = Option.isSome(agents.url) ? "AGENT_URL" : "AGENT_URLS"
    const problem = "it must not be set together with AGENT_PLATFORM_URL: agents are those of a platform, or of AG-UI"
    return Either.left(ConfigError.InvalidData([name], problem))
  })
)

/** The configuration as the environment gives it. */
interface Settings extends Config.Config.Success<typeof settings> {}

/** The effective configuration; in dev mode `keys` may be the development keys. */
export interface Configuration extends Omit<Settings, "mode" | "keys"> {
  readonly devMode: boolean
  readonly keys: Auth.Keys
  /** Settings that are valid but probably a mistake, for the log. */
  readonly warnings: ReadonlyArray<string>
}

const problemsOf = (error: ConfigError.ConfigError): ReadonlyArray<Problem> => {
  switch (error._op) {
    case "And":
    case "Or":
      return [...problemsOf(error.left), ...problemsOf(error.right)]
    default:
      return [{ variable: error.path.join("_"), problem: error.message }]
  }
}

/** Settings that are valid but probably a mistake. */
const warningsOf = (settings: Settings): ReadonlyArray<string> => {
  const { mode, address, gateway, inference, keys, metrics, replication, store } = settings
  const exposed = !isLoopback(address.host)
  const lent = mode.devMode && (Option.isNone(keys.write) || Option.isNone(keys.read))
  const findings: ReadonlyArray<readonly [boolean, string]> = [
    [mode.devModeRefused, "DEV_MODE is ignored because NODE_ENV is production"],
    [exposed && lent, `HOST ${address.host} can be reached from other machines, and the development keys are public`],
    [Option.isSome(metrics.token) && !metrics.prometheus, "METRICS_TOKEN is set, but METRICS_PROMETHEUS is not true"],
    [
      metrics.prometheus && exposed && Option.isNone(metrics.token),
      "/metrics is open to every client that reaches the service: set METRICS_TOKEN"
    ],
    [
      Option.exists(replication, ({ directory }) => directory !== store.directory),
      "REPLICATION_ENABLED checks DATA_DIR, but STORE_URL has another directory"
    ],
    [
      Option.isSome(replication) && Option.isSome(store.postgres),
      "REPLICATION_ENABLED checks the files in DATA_DIR, which with PostgreSQL contain the id of the node and no data"
    ]
  ]
  return [
    ...findings.flatMap(([applies, text]) => (applies ? [text] : [])),
    ...Inference.warnings(inference),
    ...(mode.devMode ? [] : Authentication.warnings(gateway.authentication))
  ]
}

/** The names of all variables, and of their beginnings up to an underscore. */
const namesIn = (
  { flattened }: ConfigProvider.ConfigProvider,
  path: ReadonlyArray<string> = []
): Effect.Effect<ReadonlyArray<string>> =>
  Effect.flatMap(Effect.orElseSucceed(flattened.enumerateChildren(path), HashSet.empty<string>), parts =>
    Effect.map(
      Effect.forEach(parts, part => namesIn({ flattened } as ConfigProvider.ConfigProvider, [...path, part])),
      names => [...[...parts].map(part => [...path, part].join("_")), ...names.flat()]
    )
  )

/** The variable that was probably meant by a name that is none. Other programs have short names that are similar. */
const meantBy = (name: string, known: ReadonlyArray<string>): string | undefined =>
  name.includes("_") && name.length >= 8 ? known.find(other => distance(name, other) <= 2) : undefined

/** A warning for each variable that is set by a name that is nearly right, which has no effect. */
const ignoredNames = Effect.gen(function* () {
  const known = Setting.all().map(({ name }) => name)
  const found = yield* Effect.filter(
    (yield* namesIn(yield* Effect.configProviderWith(Effect.succeed))).filter(name => !known.includes(name)),
    name => Effect.isSuccess(Config.string(name))
  )
  return found.flatMap(name => {
    const meant = meantBy(name, known)
    return meant === undefined ? [] : [`${name} is ignored: is ${meant} meant?`]
  })
})

/** Reads the configuration by the current `ConfigProvider`. */
export const load: Effect.Effect<Configuration, ConfigurationInvalid> = Effect.gen(function* () {
  const all = yield* Effect.either(settings)
  const keys = yield* Effect.either(checkedKeys)
  const agents = yield* Effect.either(checkedAgents)
  if (Either.isRight(all) && Either.isRight(keys) && Either.isRight(agents)) {
    const { mode, ...rest } = all.right
    return {
      ...rest,
      devMode: mode.devMode,
      keys: keys.right,
      warnings: [...warningsOf(all.right), ...(yield* ignoredNames)]
    }
  }
  const found = [Either.getLeft(all), Either.getLeft(keys), Either.getLeft(agents)].flatMap(error =>
    Option.match(error, { onNone: () => [], onSome: problemsOf })
  )
  const problems = [...new Map(found.map(problem => [`${problem.variable} ${problem.problem}`, problem])).values()]
  return yield* new ConfigurationInvalid({ problems })
})
