/**
 * The command `causeway`.
 */
import { parseArgs } from "node:util"
import type { Teardown } from "@effect/platform/Runtime"
import {
  Cause,
  ConfigProvider,
  Console,
  Effect,
  Exit,
  Layer,
  Option,
  Runtime,
  RuntimeFlags,
  RuntimeFlagsPatch,
  Schema
} from "effect"
import * as Configuration from "./Configuration.ts"
import * as Logging from "./Observability/Logging.ts"
import * as LogOutput from "./Observability/LogOutput.ts"
import * as ShutdownDeadline from "./Process/ShutdownDeadline.ts"
import * as Setting from "./Setting.ts"
import { version } from "./Version.ts"

/** The command failed; the message is for the user. */
export class CommandFailed extends Schema.TaggedError<CommandFailed>()("CommandFailed", {
  message: Schema.String,
  exitCode: Schema.Int
}) {}

const usage = "Usage: causeway [dev | migrate-store | --help | --version]"

const column = 32

/** What `--help` prints. */
export const help = (): string =>
  [
    "A versioned key-value store over HTTP, with atomic batches and a change feed that never skips.",
    "",
    usage,
    "",
    "Without an argument it serves until SIGTERM or SIGINT, then finishes what is in flight; a second signal ends it at",
    "once. causeway dev serves with DEV_MODE=true: development keys, and simulated upstream services.",
    "causeway migrate-store [--from <store>] [--to <store>] [--json] copies a store from SQLite into PostgreSQL, or back,",
    "while nobody serves it. A store is sqlite:<directory> or postgres://<user>@<host>/<database>; what is left out is",
    "that of STORE_URL.",
    "All configuration is by environment variables; an empty one counts as unset.",
    "",
    ...Setting.all().flatMap(({ name, description, allowed, default: shown }) => [
      `  ${name.padEnd(column)}${description}`,
      `  ${"".padEnd(column)}${allowed}${shown === "" ? "" : `; default ${shown}`}`
    ]),
    "",
    "To try it: causeway dev"
  ].join("\n")

const startFailed = ({ message }: { readonly message: string }) =>
  new CommandFailed({ message: `causeway cannot start. ${message}`, exitCode: 1 })

/** A closed pipe on standard output or standard error must not end the process. */
const ignoreClosedPipes = Effect.sync(() => {
  for (const output of [process.stdout, process.stderr]) output.on("error", () => undefined)
})

const limitShutdown = (limit: ShutdownDeadline.Limit) =>
  Effect.map(Effect.runtime<never>(), runtime => {
    const second = Effect.logWarning("A second signal ends the process at once")
    ShutdownDeadline.onSignals({ ...limit, onSecond: () => Runtime.runSync(runtime, second) })
  })

const serve = Effect.gen(function* () {
  const configuration = yield* Effect.mapError(Configuration.load, startFailed)
  const logging = Logging.layer({ level: configuration.logLevel, format: configuration.devMode ? "pretty" : "json" })
  yield* ignoreClosedPipes
  const limit = { limit: configuration.shutdownTimeout, isJson: !configuration.devMode }
  // Loaded here, so that `--help` needs no native module, which an older Node cannot load.
  const Server = yield* Effect.promise(() => import("./Server.ts"))
  return yield* Effect.zipRight(limitShutdown(limit), Layer.launch(Server.layer(configuration))).pipe(
    Effect.mapError(startFailed),
    Effect.ensuring(ShutdownDeadline.settled(limit)),
    Effect.provide(logging),
    LogOutput.withBound(!configuration.devMode)
  )
}).pipe(
  // Effect's own metrics of fibers are not shown.
  Effect.withRuntimeFlagsPatch(RuntimeFlagsPatch.disable(RuntimeFlags.RuntimeMetrics))
)

const wrongArguments = (problem: string) => new CommandFailed({ message: `${problem}\n${usage}`, exitCode: 2 })

const migrateStore = (args: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const { values } = yield* Effect.try({
      try: () =>
        parseArgs({
          args: [...args],
          strict: true,
          options: { from: { type: "string" }, to: { type: "string" }, json: { type: "boolean", default: false } }
        }),
      catch: error => wrongArguments(error instanceof Error ? error.message : String(error))
    })
    yield* ignoreClosedPipes
    // Loaded here, as it needs the native module of SQLite.
    const { run } = yield* Effect.promise(() => import("./CommandLine/MigrateStore.ts"))
    const { from, json, to } = values
    yield* Effect.catchTags(run({ from: Option.fromNullable(from), to: Option.fromNullable(to), json }), {
      WrongStores: ({ message }) => wrongArguments(message),
      StoreCopyRefused: ({ message }) => new CommandFailed({ message: `Nothing was copied. ${message}`, exitCode: 1 }),
      StoreCopyFailed: ({ message }) =>
        new CommandFailed({
          message: `The copy was not finished, and its target is not served: run the command again. ${message}`,
          exitCode: 1
        })
    })
  })

const devMode = ConfigProvider.fromMap(new Map([["DEV_MODE", "true"]]))

/** Serves in dev mode, whatever the variable says. */
const develop = Effect.configProviderWith(variables =>
  Effect.withConfigProvider(
    serve,
    ConfigProvider.orElse(devMode, () => variables)
  )
)

/** Runs the command with its arguments. */
export const run = (args: ReadonlyArray<string>): Effect.Effect<void, CommandFailed> => {
  const [option, ...rest] = args
  if (option === undefined) return serve
  if (option === "migrate-store") return migrateStore(rest)
  if (rest.length === 0) {
    if (option === "--help" || option === "-h") return Console.log(help())
    if (option === "--version") return Console.log(version)
    if (option === "dev") return develop
  }
  return wrongArguments(`causeway does not take ${JSON.stringify(args.join(" "))}.`)
}

/** Runs the command and prints on standard error why it failed. */
export const main = (args: ReadonlyArray<string>): Effect.Effect<void, CommandFailed> =>
  Effect.tapErrorCause(run(args), cause =>
    Option.match(Cause.failureOption(cause), {
      onSome: ({ message }) => Console.error(message),
      // A defect: everything known of it helps to find it.
      onNone: () => (Cause.isInterruptedOnly(cause) ? Effect.void : Console.error(Cause.pretty(cause)))
    })
  )

/**
 * Exit codes: 0 after shutdown, also by a signal; 1 for a failed start or a defect; 2 for wrong arguments. After the
 * shutdown deadline or a second signal the process ends by SIGKILL.
 */
export const teardown: Teardown = (exit, onExit) => {
  if (Exit.isSuccess(exit) || Cause.isInterruptedOnly(exit.cause)) return onExit(0)
  const error = Option.getOrUndefined(Cause.failureOption(exit.cause))
  onExit(error instanceof CommandFailed ? error.exitCode : 1)
}
