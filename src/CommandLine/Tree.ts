/** The tree of commands, for parsing as well as for help and completions. */
import { stripVTControlCharacters } from "node:util"
import { HashSet } from "effect"
import type * as Arguments from "./Arguments.ts"
import { CliConfig, Command, HelpDoc, Usage } from "./Library.ts"

/** A command in help and completions. */
export interface Node extends Arguments.Node {
  readonly summary: string
  readonly below: ReadonlyArray<Node>
}

// biome-ignore lint/suspicious/noExplicitAny: the parameters of a command are invariant
type AnyCommand = Command.Command<any, any, any, any>

/** A command of the library, and its node. */
export interface Registered<C extends AnyCommand> {
  readonly command: C
  readonly node: Node
}

const textOf = (doc: HelpDoc.HelpDoc): string => stripVTControlCharacters(HelpDoc.toAnsiText(doc)).trim()

/** The options in a usage such as `get [--json] [--url address] <key>`, and whether they take a value. */
const optionsIn = (usage: string): ReadonlyMap<string, boolean> =>
  new Map([...usage.matchAll(/(--[a-z-]+)( [^\])\s]+)?/g)].map(([, name = "", value]) => [name, value !== undefined]))

const firstParagraph = (doc: HelpDoc.HelpDoc): HelpDoc.HelpDoc | undefined =>
  HelpDoc.isSequence(doc)
    ? (firstParagraph(doc.left) ?? firstParagraph(doc.right))
    : HelpDoc.isParagraph(doc)
      ? doc
      : undefined

const nodeOf = (command: AnyCommand, below: ReadonlyArray<Node>): Node => {
  const paragraph = firstParagraph(Command.getHelp(command, CliConfig.defaultConfig))
  const [name = ""] = HashSet.values(Command.getNames(command))
  return {
    name,
    summary: paragraph === undefined ? "" : textOf(paragraph),
    options: below.length > 0 ? new Map() : optionsIn(textOf(Usage.getHelp(Command.getUsage(command)))),
    below
  }
}

/** A command without subcommands. */
export const leaf = <C extends AnyCommand>(command: C): Registered<C> => ({ command, node: nodeOf(command, []) })

/** A command that only has subcommands. They are listed in this order. */
export const group = <
  Name extends string,
  Children extends readonly [Registered<AnyCommand>, ...ReadonlyArray<Registered<AnyCommand>>]
>(
  name: Name,
  description: string,
  children: Children
) => {
  type Child = Children[number]["command"]
  const [first, ...rest] = children
  const commands: readonly [Child, ...Array<Child>] = [first.command, ...rest.map(({ command }): Child => command)]
  const command = Command.make(name).pipe(Command.withDescription(description), Command.withSubcommands(commands))
  const below = children.map(({ node }) => node)
  return { command, node: nodeOf(command, below) }
}
