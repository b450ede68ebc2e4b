/** The tree of commands, for parsing as well as for help and completions. The completions of @effect/cli omit subcommands and offer options that `causeway` does not take. */

import { stripVTControlCharacters } from "node:util"
import { HashSet, Option } from "effect"
import type * as Arguments from "./Arguments.ts"
import { optionsAt } from "./Arguments.ts"
import * as Connection from "./Connection.ts"
import { examples } from "./Examples.ts"
import { CliConfig, Command, HelpDoc, Usage } from "./Library.ts"
import { list } from "./Terminal/Output.ts"

/** A command in help and completions. */
export interface Node extends Arguments.Node {
  readonly summary: string
  /** Its arguments, as in `[--url address] <key>`. */
  readonly usage: string
  /** Its description and its arguments, each with its description. */
  readonly help: string
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

/** The options of a command, and whether they take a value. */
const optionsIn = (usage: Usage.Usage): ReadonlyArray<readonly [name: string, hasValue: boolean]> => {
  switch (usage._tag) {
    case "Named":
      return usage.names
        .filter(name => name.startsWith("--"))
        .map(name => [name, Option.isSome(usage.acceptedValues)] as const)
    case "Optional":
    case "Repeated":
      return optionsIn(usage.usage)
    case "Alternation":
    case "Concat":
      return [...optionsIn(usage.left), ...optionsIn(usage.right)]
    default:
      return []
  }
}

const paragraphsOf = (doc: HelpDoc.HelpDoc): ReadonlyArray<HelpDoc.HelpDoc> =>
  HelpDoc.isSequence(doc)
    ? [...paragraphsOf(doc.left), ...paragraphsOf(doc.right)]
    : HelpDoc.isParagraph(doc)
      ? [doc]
      : []

/**
 * The help without the library's paragraphs about the type of each argument and about whether it is optional, and without
 * the definitions whose texts are dropped.
 */
const withoutTypes = (doc: HelpDoc.HelpDoc, isDropped: (text: string) => boolean): HelpDoc.HelpDoc => {
  if (HelpDoc.isSequence(doc)) {
    return HelpDoc.sequence(withoutTypes(doc.left, isDropped), withoutTypes(doc.right, isDropped))
  }
  if (!HelpDoc.isDescriptionList(doc)) return doc
  const [first, ...others] = doc.definitions
    .map(
      // The type is the first paragraph, and ours the second.
      ([name, about]): [typeof name, HelpDoc.HelpDoc] => [name, paragraphsOf(about)[1] ?? HelpDoc.empty]
    )
    .filter(([, about]) => !isDropped(textOf(about)))
  return first === undefined ? HelpDoc.empty : HelpDoc.descriptionList([first, ...others])
}

const definitionsOf = (doc: HelpDoc.HelpDoc): ReadonlyArray<string> =>
  HelpDoc.isSequence(doc)
    ? [...definitionsOf(doc.left), ...definitionsOf(doc.right)]
    : HelpDoc.isDescriptionList(doc)
      ? doc.definitions.map(([, about]) => textOf(paragraphsOf(about)[1] ?? HelpDoc.empty))
      : []

/** The kind of the credential of a command whose options for the connection are those of most commands. */
const connectionOf = (help: HelpDoc.HelpDoc): Connection.Kind | undefined => {
  const shared = definitionsOf(help).filter(text => Connection.optionHelp.has(text))
  return shared.length < Connection.connectingOptions
    ? undefined
    : shared.map(Connection.kindOf).find(kind => kind !== undefined)
}

const helpOf = (command: AnyCommand): HelpDoc.HelpDoc =>
  Command.getHelp(command, CliConfig.make({ showBuiltIns: false }))

const nodeOf = (command: AnyCommand, below: ReadonlyArray<Node>): Node => {
  const [name = ""] = HashSet.values(Command.getNames(command))
  const usage = Command.getUsage(command)
  return {
    name,
    // Most runs show none of these texts, and to compute those of all commands takes longer than to run most commands.
    get summary() {
      const [first] = paragraphsOf(helpOf(command))
      return first === undefined ? "" : textOf(first)
    },
    get usage() {
      const all = textOf(Usage.getHelp(usage)).slice(name.length).trim()
      return connectionOf(helpOf(command)) === undefined ? all : all.replace(`${Connection.usage} `, "")
    },
    get help() {
      const help = helpOf(command)
      const kind = connectionOf(help)
      const isDropped = (text: string): boolean => kind !== undefined && Connection.optionHelp.has(text)
      const own = textOf(withoutTypes(help, isDropped)).replace(/\n{2,}( +\S)/g, "\n$1")
      return kind === undefined ? own : `${own}\n\n${Connection.helpLine(kind)}`
    },
    options: new Map(below.length > 0 ? [] : optionsIn(usage)),
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

const at = (node: Node, [name, ...rest]: ReadonlyArray<string>): Node => {
  const next = node.below.find(child => child.name === name)
  return next === undefined ? node : at(next, rest)
}

const linesOf = (path: ReadonlyArray<string>, { below }: Node): ReadonlyArray<readonly [string, string]> =>
  below.flatMap(node => {
    const names = [...path, node.name]
    return node.below.length > 0 ? linesOf(names, node) : [[`  ${names.join(" ")}`, node.summary] as const]
  })

/** Whether the command at a path only has subcommands. */
export const isGroup = (root: Node, path: ReadonlyArray<string>): boolean => at(root, path).below.length > 0

/** The output of `--help` of the command at a path. */
export const helpAt = (root: Node, path: ReadonlyArray<string>): string => {
  const found = at(root, path)
  const command = ["causeway", ...path].join(" ")
  if (found.below.length === 0) {
    const shown = (examples[path.join(" ")] ?? []).map(example => `\n  ${example}`).join("")
    return `USAGE\n\n$ ${[command, found.usage].join(" ").trim()}\n\n${found.help}\n\nEXAMPLES\n${shown}`
  }
  return [
    found.summary,
    "",
    `Usage: ${path.length === 0 ? `${command} [command]` : `${command} <command>`}`,
    "",
    list(linesOf(path, found)),
    `${command} <command> --help lists the arguments of a command.`,
    ...(path.length > 0
      ? []
      : [
          "causeway connection explains how a command finds the service and the credential.",
          "causeway serve --help lists the variables that configure the service.",
          "causeway --completions bash, zsh or fish prints completions for a shell."
        ])
  ].join("\n")
}

export const shells = ["bash", "zsh", "fish"] as const

export type Shell = (typeof shells)[number]

export const isShell = (text: string): text is Shell => shells.some(shell => shell === text)

/** A position in the tree, and the words that can follow. */
interface Position {
  /** The names of the commands before it, each after a blank: `" kv get"`. */
  readonly path: string
  readonly commands: ReadonlyArray<Node>
  /** The long options, and whether they take a value. */
  readonly options: ReadonlyArray<readonly [name: string, hasValue: boolean]>
}

const positionsOf = (node: Node, path: string, isRoot: boolean): ReadonlyArray<Position> => [
  {
    path,
    commands: node.below,
    options: [...optionsAt(node, isRoot)].filter(([name]) => name.startsWith("--"))
  },
  ...node.below.flatMap(child => positionsOf(child, `${path} ${child.name}`, false))
]

const wordsOf = ({ commands, options }: Position): string =>
  [...commands.map(({ name }) => name), ...options.map(([name]) => name)].join(" ")

/** The positions below the root, as alternatives of a pattern. */
const alternatives = (positions: ReadonlyArray<Position>, separator: string): string =>
  positions
    .slice(1)
    .map(({ path }) => `"${path}"`)
    .join(separator)

const cases = (positions: ReadonlyArray<Position>, indent: string): string =>
  positions.map(position => `${indent}"${position.path}") found="${wordsOf(position)}" ;;`).join("\n")

const bash = (positions: ReadonlyArray<Position>): string => `_causeway() {
  local at="" found="" index
  for ((index = 1; index < COMP_CWORD; index++)); do
    case "$at \${COMP_WORDS[index]}" in
      ${alternatives(positions, " | ")}) at="$at \${COMP_WORDS[index]}" ;;
    esac
  done
  case "$at" in
${cases(positions, "    ")}
  esac
  COMPREPLY=($(compgen -W "$found" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o bashdefault -o default -F _causeway causeway
`

const zsh = (positions: ReadonlyArray<Position>): string => `#compdef causeway
_causeway() {
  local at="" found="" word
  for word in "\${(@)words[2,CURRENT-1]}"; do
    case "$at $word" in
      ${alternatives(positions, " | ")}) at="$at $word" ;;
    esac
  done
  case "$at" in
${cases(positions, "    ")}
  esac
  compadd -- \${(s: :)found}
  [[ "\${words[CURRENT]}" == -* ]] || _files
}
if [ "$funcstack[1]" = "_causeway" ]; then _causeway "$@"; else compdef _causeway causeway; fi
`

const quoted = (text: string): string => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`

const fish = (positions: ReadonlyArray<Position>): string => {
  const lines = positions.flatMap(({ commands, options, path }) => {
    const prefix = `complete -c causeway -n 'test "$(__causeway_at)" = "${path}"'`
    return [
      ...commands.map(({ name, summary }) => `${prefix} -a ${name} -d ${quoted(summary)}`),
      ...options.map(([name, hasValue]) => `${prefix} -l ${name.slice(2)}${hasValue ? " -r" : ""}`)
    ]
  })
  return `function __causeway_at
  set -l at ""
  for word in (commandline -opc)[2..]
    switch "$at $word"
      case ${alternatives(positions, " ")}
        set at "$at $word"
    end
  end
  echo "$at"
end
${lines.join("\n")}
`
}

/** The script for a shell to load. */
export const completions = (shell: Shell, root: Node): string => {
  const positions = positionsOf(root, "", true)
  return { bash, zsh, fish }[shell](positions)
}
