/**
 * Completions for shells: names of commands and options, and files everywhere else. They are made from the tree of
 * commands, as those of @effect/cli do not know commands below others, and offer options that `causeway` does not take.
 */
import { optionsAt } from "./Arguments.ts"
import type { Node } from "./Help.ts"

/** The shells for which there are completions. */
export const shells = ["bash", "zsh", "fish"] as const

export type Shell = (typeof shells)[number]

export const isShell = (text: string): text is Shell => shells.some(shell => shell === text)

/** A place in the tree, and what can stand there. */
interface Place {
  /** The names that lead there, each with a blank before it: `" kv get"`. */
  readonly path: string
  readonly commands: ReadonlyArray<Node>
  /** The long options, and whether they have a value. */
  readonly options: ReadonlyArray<readonly [name: string, hasValue: boolean]>
}

const placesOf = (node: Node, path: string, isRoot: boolean): ReadonlyArray<Place> => [
  {
    path,
    commands: node.below,
    options: [...optionsAt(node, isRoot)].filter(([name]) => name.startsWith("--"))
  },
  ...node.below.flatMap(child => placesOf(child, `${path} ${child.name}`, false))
]

const wordsOf = ({ commands, options }: Place): string =>
  [...commands.map(({ name }) => name), ...options.map(([name]) => name)].join(" ")

/** The places below the root, as alternatives of a pattern. */
const alternatives = (places: ReadonlyArray<Place>, separator: string): string =>
  places
    .slice(1)
    .map(({ path }) => `"${path}"`)
    .join(separator)

const cases = (places: ReadonlyArray<Place>, indent: string): string =>
  places.map(place => `${indent}"${place.path}") found="${wordsOf(place)}" ;;`).join("\n")

const bash = (places: ReadonlyArray<Place>): string => `_causeway() {
  local at="" found="" index
  for ((index = 1; index < COMP_CWORD; index++)); do
    case "$at \${COMP_WORDS[index]}" in
      ${alternatives(places, " | ")}) at="$at \${COMP_WORDS[index]}" ;;
    esac
  done
  case "$at" in
${cases(places, "    ")}
  esac
  COMPREPLY=($(compgen -W "$found" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o bashdefault -o default -F _causeway causeway
`

const zsh = (places: ReadonlyArray<Place>): string => `#compdef causeway
_causeway() {
  local at="" found="" word
  for word in "\${(@)words[2,CURRENT-1]}"; do
    case "$at $word" in
      ${alternatives(places, " | ")}) at="$at $word" ;;
    esac
  done
  case "$at" in
${cases(places, "    ")}
  esac
  compadd -- \${(s: :)found}
  [[ "\${words[CURRENT]}" == -* ]] || _files
}
if [ "$funcstack[1]" = "_causeway" ]; then _causeway "$@"; else compdef _causeway causeway; fi
`

const quoted = (text: string): string => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`

const fish = (places: ReadonlyArray<Place>): string => {
  const lines = places.flatMap(({ commands, options, path }) => {
    const there = `complete -c causeway -n 'test "$(__causeway_at)" = "${path}"'`
    return [
      ...commands.map(({ name, summary }) => `${there} -a ${name} -d ${quoted(summary)}`),
      ...options.map(([name, hasValue]) => `${there} -l ${name.slice(2)}${hasValue ? " -r" : ""}`)
    ]
  })
  return `function __causeway_at
  set -l at ""
  for word in (commandline -opc)[2..]
    switch "$at $word"
      case ${alternatives(places, " ")}
        set at "$at $word"
    end
  end
  echo "$at"
end
${lines.join("\n")}
`
}

/** The script that a shell loads. */
export const script = (shell: Shell, root: Node): string => {
  const places = placesOf(root, "", true)
  return { bash, zsh, fish }[shell](places)
}
