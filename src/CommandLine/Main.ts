/** The commands of `causeway`, and how one is run with its arguments. */
import { stripVTControlCharacters } from "node:util"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import * as NodePath from "@effect/platform-node/NodePath"
import * as NodeTerminal from "@effect/platform-node/NodeTerminal"
import { Console, Effect, Layer, Option } from "effect"
import { version } from "../base/Version.ts"
import * as Arguments from "./Arguments.ts"
import { type CommandFailed, wrong } from "./CommandFailed.ts"
import { text } from "./CommandOptions.ts"
import * as Connection from "./Connection.ts"
import { remove } from "./Entries/Delete.ts"
import * as Entry from "./Entries/Entry.ts"
import { list, namespaces } from "./Entries/List.ts"
import { watch } from "./Entries/Watch.ts"
import { CliConfig, Command } from "./Library.ts"
import * as Sessions from "./Sessions.ts"
import * as Status from "./Status.ts"
import { backup, restore } from "./Store/Backup.ts"
import { command as migrateStore } from "./Store/MigrateStore.ts"
import * as Output from "./Terminal/Output.ts"
import { command as batch } from "./Transfer/Batch.ts"
import { command as exporting } from "./Transfer/Export.ts"
import { command as importing } from "./Transfer/Import.ts"
import { completions, group, helpAt, isGroup, isShell, leaf, shells } from "./Tree.ts"

/** What the composition of the service provides. Each part is loaded when it is used. */
export interface Parts extends Status.Documents {
  readonly serve: Effect.Effect<void, CommandFailed>
  /** With the address of an AG-UI agent, if there is one. */
  readonly develop: (agentUrl?: string) => Effect.Effect<void, CommandFailed>
}

/** All commands, and their tree for help and completions. */
const commandsOf = (parts: Parts) => {
  const serve = Command.make("serve", {}, () => parts.serve).pipe(
    Command.withDescription("Serve until SIGTERM or SIGINT, like causeway without a command")
  )
  const agent = text("agent", "Address of an AG-UI agent, like AGENT_URL; default a simulated one", "address")
  const dev = Command.make("dev", { agent }, ({ agent }) => parts.develop(Option.getOrUndefined(agent))).pipe(
    Command.withDescription("Serve with development keys and simulated upstream services")
  )
  const connection = Command.make("connection", {}, () => Output.write(`${Connection.page}\n`)).pipe(
    Command.withDescription("Explain how commands find the service and the credential")
  )
  return group("causeway", "A versioned key-value store over HTTP, and a gateway to an AI-agent platform.", [
    leaf(serve),
    leaf(dev),
    group("kv", "Entries of the store", [
      leaf(Entry.get),
      leaf(Entry.set),
      leaf(remove),
      leaf(list),
      leaf(namespaces),
      leaf(watch)
    ]),
    leaf(batch),
    leaf(exporting),
    leaf(importing),
    leaf(backup),
    leaf(restore),
    leaf(migrateStore),
    leaf(Status.health),
    leaf(Status.openapi(parts)),
    group("sessions", "Sessions of agents", [
      leaf(Sessions.list),
      leaf(Sessions.show),
      leaf(Sessions.tail),
      leaf(Sessions.send)
    ]),
    leaf(Sessions.chat),
    leaf(connection)
  ])
}

const help = (path: ReadonlyArray<string>): string => `causeway ${[...path, "--help"].join(" ")} lists its arguments.`

/** Whether a command is the service, which has no arguments. */
const isService = ([name, ...others]: ReadonlyArray<string>): boolean =>
  others.length === 0 && (name === "serve" || name === "dev")

const configured = "It is configured by variables, such as PORT=9000; causeway serve --help lists them."

const unknownArgument = ({
  known,
  path,
  unknown
}: Extract<Arguments.Arranged, { readonly unknown: string }>): CommandFailed => {
  const command = ["causeway", ...path].join(" ")
  const refuse = (hint: string) => wrong(`${command} does not take ${JSON.stringify(unknown)}`, hint)
  if (isService(path)) return refuse(configured)
  // A short word is similar to each short option.
  const names = known.filter(name => name !== "-h")
  const meant = Arguments.suggestion(unknown, [...names, "--help", ...(path.length === 0 ? ["--version"] : [])])
  if (meant !== undefined && meant !== "--help") return refuse(`Did you mean ${command} ${meant}? ${help(path)}`)
  const isValue = path.length > 0 && meant === undefined && unknown.startsWith("-")
  return refuse(isValue ? `After -- arguments may start with -. ${help(path)}` : help(path))
}

export const runWith = (args: ReadonlyArray<string>, parts: Parts): Effect.Effect<void, CommandFailed, Output.Output> =>
  Effect.gen(function* () {
    const outer = yield* Console.consoleWith(Effect.succeed)
    const { command, node: tree } = commandsOf(parts)
    const arranged = Arguments.arrange(args, tree)
    const { path } = arranged
    if ("unknown" in arranged) return yield* unknownArgument(arranged)
    if ("missingValueOf" in arranged) return yield* wrong(`${arranged.missingValueOf} takes a value`, help(path))
    if ("repeated" in arranged) return yield* wrong(`${arranged.repeated} is given twice, with different values`)
    const { args: given } = arranged
    if (path.length === 0 && given.includes("--completions")) {
      const shell = given[given.indexOf("--completions") + 1] ?? ""
      if (isShell(shell)) return yield* Output.write(completions(shell, tree))
      return yield* wrong(`--completions takes ${shells.join(", ")}`, help(path))
    }
    if (given.includes("--help")) return yield* Output.write(`${helpAt(tree, path)}\n`)
    if (given.includes("--version")) return yield* Output.write(`${version}\n`)
    if (isGroup(tree, path)) {
      return yield* wrong(`${["causeway", ...path].join(" ")} takes the name of a command`, help(path))
    }
    const errors: Array<string> = []
    // Problems of the arguments are reported in one message.
    const console: Console.Console = {
      ...outer,
      error: (...parts) => Effect.sync(() => errors.push(...parts.map(String)))
    }
    yield* Command.run(command, { name: "causeway", version })(["node", "causeway", ...given]).pipe(
      Effect.withConsole(console),
      Effect.catchAll((error): Effect.Effect<never, CommandFailed | Output.OutputClosed> => {
        if (error._tag === "CommandFailed" || error._tag === "OutputClosed") return error
        return wrong(stripVTControlCharacters(errors.join("\n")).replace(/\n+/g, "\n").trim(), help(path))
      })
    )
  }).pipe(
    Effect.catchTag("OutputClosed", () => Effect.void),
    Effect.provide(
      Layer.mergeAll(
        NodeFileSystem.layer,
        NodePath.layer,
        NodeTerminal.layer,
        CliConfig.layer({ showBuiltIns: false, isCaseSensitive: true })
      )
    )
  )

/** Runs a command with the arguments and the output of this process. */
export const run = (args: ReadonlyArray<string>, parts: Parts): Effect.Effect<void, CommandFailed> =>
  Effect.provide(runWith(args, parts), Output.layer)
