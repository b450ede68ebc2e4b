/**
 * Completions for shells: names of commands and options, otherwise files. They are made from the tree of commands: those
 * of @effect/cli omit subcommands and offer options that `causeway` does not take.
 */
import { optionsAt } from "./Arguments.ts"
import type { Node } from "./Tree.ts"

/** The supported shells. */
export const shells = ["bash", "zsh", "fish"] as const

/** A supported shell. */
export type Shell = (typeof shells)[number]

/** Whether a text is the name of a supported shell. */
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
export const script = (shell: Shell, root: Node): string => {
  const positions = positionsOf(root, "", true)
  return { bash, zsh, fish }[shell](positions)
}
