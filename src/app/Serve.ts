/** The service as a command: its configuration, its log, and its exit. */
import { ConfigProvider, Effect, Layer, Runtime, RuntimeFlags, RuntimeFlagsPatch } from "effect"
import * as Logging from "../base/Observability/Logging.ts"
import * as LogOutput from "../base/Observability/LogOutput.ts"
import * as ShutdownDeadline from "../base/Process/ShutdownDeadline.ts"
import * as YoungGeneration from "../base/Process/YoungGeneration.ts"
import * as Setting from "../base/Setting.ts"
import { CommandFailed, exitCodes } from "../CommandLine/CommandFailed.ts"
import { examples } from "../CommandLine/Examples.ts"
import * as Configuration from "./Configuration.ts"

const column = 32

/** What `causeway serve --help` prints. */
export const help = (): string =>
  [
    "Usage: causeway [serve | dev [--agent <address of an AG-UI agent>]]",
    "",
    "It serves until SIGTERM or SIGINT, then finishes what is in flight; a second signal ends it at once. causeway dev",
    "serves with DEV_MODE=true: development keys, and simulated upstream services, or the agent.",
    "All configuration is by environment variables; an empty one counts as unset.",
    "",
    ...Setting.all().flatMap(({ name, description, allowed, default: shown }) => [
      `  ${name.padEnd(column)}${description}`,
      `  ${"".padEnd(column)}${allowed}${shown === "" ? "" : `; default ${shown}`}`
    ]),
    "",
    "EXAMPLES",
    "",
    ...[...(examples.serve ?? []), ...(examples.dev ?? [])].map(example => `  ${example}`),
    "",
    "causeway --help lists the commands."
  ].join("\n")

const startFailed =
  (exitCode: number) =>
  ({ message }: { readonly message: string }) =>
    new CommandFailed({ message: `causeway cannot start. ${message}`, exitCode })

const limitShutdown = (limit: ShutdownDeadline.Limit) =>
  Effect.map(Effect.runtime<never>(), runtime => {
    const second = Effect.logWarning("A second signal ends the process at once")
    ShutdownDeadline.onSignals({ ...limit, onSecond: () => Runtime.runSync(runtime, second) })
  })

/** Serves until it is interrupted. */
export const serve: Effect.Effect<void, CommandFailed> = Effect.gen(function* () {
  const configuration = yield* Effect.mapError(Configuration.load, startFailed(exitCodes.wrongArguments))
  const logging = Logging.layer({ level: configuration.logLevel, format: configuration.devMode ? "pretty" : "json" })
  const limit = { limit: configuration.shutdownTimeout, isJson: !configuration.devMode }
  // Loaded here, so that `--help` needs no native module, which an older Node cannot load.
  const Server = yield* Effect.promise(() => import("./Server.ts"))
  // Objects that are built at the start survive, and the young generation would grow only for them.
  const server = Layer.tap(Server.layer(configuration), () => Effect.sync(YoungGeneration.release))
  return yield* Effect.zipRight(limitShutdown(limit), Layer.launch(server)).pipe(
    Effect.mapError(startFailed(exitCodes.failed)),
    Effect.ensuring(ShutdownDeadline.settled(limit)),
    Effect.provide(logging),
    LogOutput.withBound(!configuration.devMode)
  )
}).pipe(
  // Effect's own metrics of fibers are not shown.
  Effect.withRuntimeFlagsPatch(RuntimeFlagsPatch.disable(RuntimeFlags.RuntimeMetrics))
)

/** Serves in dev mode, regardless of `DEV_MODE`, before an AG-UI agent if there is one. */
export const develop = (agentUrl?: string): Effect.Effect<void, CommandFailed> =>
  Effect.configProviderWith(variables => {
    const given = [["DEV_MODE", "true"], ...(agentUrl === undefined ? [] : [["AGENT_URL", agentUrl] as const])] as const
    return Effect.withConfigProvider(
      serve,
      ConfigProvider.orElse(ConfigProvider.fromMap(new Map(given)), () => variables)
    )
  })
