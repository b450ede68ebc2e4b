/** What `--help` prints. */
import { stripVTControlCharacters } from "node:util"
import { HashSet } from "effect"
import type * as Arguments from "./Arguments.ts"
import { CliConfig, Command, HelpDoc, Usage } from "./Library.ts"
import { list } from "./Terminal/Table.ts"

/** A command as it is listed, and those below it. */
export interface Node extends Arguments.Node {
  readonly summary: string
  readonly below: ReadonlyArray<Node>
}

const textOf = (doc: HelpDoc.HelpDoc): string => stripVTControlCharacters(HelpDoc.toAnsiText(doc)).trim()

/** The options in a usage such as `get [--json] [--url address] <key>`, and whether they have a value. */
const optionsIn = (usage: string): ReadonlyMap<string, boolean> =>
  new Map([...usage.matchAll(/(--[a-z-]+)( [^\])\s]+)?/g)].map(([, name = "", value]) => [name, value !== undefined]))

const firstParagraph = (doc: HelpDoc.HelpDoc): HelpDoc.HelpDoc | undefined =>
  HelpDoc.isSequence(doc)
    ? (firstParagraph(doc.left) ?? firstParagraph(doc.right))
    : HelpDoc.isParagraph(doc)
      ? doc
      : undefined

/** A command with those below it. */
export const node = <Name extends string, R, E, A>(
  command: Command.Command<Name, R, E, A>,
  below: ReadonlyArray<Node>
): Node => {
  const paragraph = firstParagraph(Command.getHelp(command, CliConfig.defaultConfig))
  const [name = ""] = HashSet.values(Command.getNames(command))
  return {
    name,
    summary: paragraph === undefined ? "" : textOf(paragraph),
    options: below.length > 0 ? new Map() : optionsIn(textOf(Usage.getHelp(Command.getUsage(command)))),
    below
  }
}

/** A command without others below it. */
export const leaf = <Name extends string, R, E, A>(command: Command.Command<Name, R, E, A>): Node => node(command, [])

const at = (node: Node, [name, ...rest]: ReadonlyArray<string>): Node => {
  const next = node.below.find(child => child.name === name)
  return next === undefined ? node : at(next, rest)
}

const linesOf = (path: ReadonlyArray<string>, { below }: Node): ReadonlyArray<readonly [string, string]> =>
  below.flatMap(node => {
    const names = [...path, node.name]
    return node.below.length > 0 ? linesOf(names, node) : [[`  ${names.join(" ")}`, node.summary] as const]
  })

/** The help of the command at a path; `undefined` where it has no others below it. */
export const ofGroup = (root: Node, path: ReadonlyArray<string>): string | undefined => {
  const found = at(root, path)
  if (found.below.length === 0) return undefined
  const command = ["causeway", ...path].join(" ")
  return [
    found.summary,
    "",
    `Usage: ${path.length === 0 ? `${command} [command]` : `${command} <command>`}`,
    "",
    list(linesOf(path, found)),
    `${command} <command> --help tells what a command takes.`,
    ...(path.length > 0
      ? []
      : [
          "causeway serve --help lists the variables by which the service is configured.",
          "causeway --completions bash, zsh or fish prints completions for a shell."
        ])
  ].join("\n")
}

/** What the library says of every argument of a type, and of every one that may be left out. */
const idle = /^ +(?:A user-defined piece of text|A true or false value|An integer|This setting is optional)\.$/

/** The library's help of one command, without what tells nothing. */
export const compact = (text: string, path: ReadonlyArray<string>): string => {
  const usage = text.indexOf("USAGE")
  const lines = text.slice(Math.max(0, usage)).split("\n")
  return lines
    .filter(line => !idle.test(line))
    .join("\n")
    .replace(/^\$ \S+/m, `$ causeway ${path.join(" ")}`)
    .replace(/\n{2,}( +\S)/g, "\n$1")
    .replace(/\n{3,}/g, "\n\n")
    .trim()
}
