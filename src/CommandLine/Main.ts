/** Runs a command with its arguments. */
import { stripVTControlCharacters } from "node:util"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import * as NodePath from "@effect/platform-node/NodePath"
import * as NodeTerminal from "@effect/platform-node/NodeTerminal"
import { Console, Effect, Layer } from "effect"
import { version } from "../Version.ts"
import * as Arguments from "./Arguments.ts"
import { type CommandFailed, wrong } from "./CommandFailed.ts"
import * as Completions from "./Completions.ts"
import * as Help from "./Help.ts"
import { CliConfig, Command } from "./Library.ts"
import * as Root from "./Root.ts"
import * as Suggestion from "./Suggestion.ts"
import * as Output from "./Terminal/Output.ts"

const help = (path: ReadonlyArray<string>): string => `causeway ${[...path, "--help"].join(" ")} lists its arguments.`

/** Whether a command is the service, which has no arguments. */
const isService = ([name, ...others]: ReadonlyArray<string>): boolean =>
  others.length === 0 && (name === "serve" || name === "dev")

const configured = "It is configured by variables, such as PORT=9000; causeway serve --help lists them."

/** The failure of an unknown argument, with a suggestion. */
const unknownArgument = ({ known, path, unknown }: Arguments.UnknownArgument): CommandFailed => {
  const command = ["causeway", ...path].join(" ")
  const refuse = (hint: string) => wrong(`${command} does not take ${JSON.stringify(unknown)}`, hint)
  if (isService(path)) return refuse(configured)
  // A short word is similar to each short option.
  const names = known.filter(name => name !== "-h")
  const meant = Suggestion.of(unknown, [...names, "--help", ...(path.length === 0 ? ["--version"] : [])])
  if (meant !== undefined && meant !== "--help") return refuse(`Did you mean ${command} ${meant}? ${help(path)}`)
  const isValue = path.length > 0 && meant === undefined && unknown.startsWith("-")
  return refuse(isValue ? `After -- arguments may start with -. ${help(path)}` : help(path))
}

/** Runs a command. Its output is that of the context. */
export const runWith = (
  args: ReadonlyArray<string>,
  parts: Root.Parts
): Effect.Effect<void, CommandFailed, Output.Output> =>
  Effect.gen(function* () {
    const outer = yield* Console.consoleWith(Effect.succeed)
    const { command, node: tree } = Root.make({
      ...parts,
      migrateStore: given => Effect.withConsole(parts.migrateStore(given), outer)
    })
    const arranged = Arguments.arrange(args, tree)
    const { path } = arranged
    if ("unknown" in arranged) return yield* unknownArgument(arranged)
    if ("missingValueOf" in arranged) return yield* wrong(`${arranged.missingValueOf} takes a value`, help(path))
    if ("repeated" in arranged) return yield* wrong(`${arranged.repeated} is given twice, with different values`)
    const { args: given } = arranged
    if (path.length === 0 && given.includes("--completions")) {
      const shell = given[given.indexOf("--completions") + 1] ?? ""
      if (Completions.isShell(shell)) return yield* Output.write(Completions.script(shell, tree))
      return yield* wrong(`--completions takes ${Completions.shells.join(", ")}`, help(path))
    }
    if (given.includes("--help")) return yield* Output.write(`${Help.of(tree, path)}\n`)
    if (given.includes("--version")) return yield* Output.write(`${version}\n`)
    if (Help.isGroup(tree, path)) {
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
export const run = (args: ReadonlyArray<string>, parts: Root.Parts): Effect.Effect<void, CommandFailed> =>
  Effect.provide(runWith(args, parts), Output.layer)
