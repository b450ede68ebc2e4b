/** The output of `--help`. */
import { list } from "./Terminal/Table.ts"
import type { Node } from "./Tree.ts"

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

/** The help of the command at a path. */
export const of = (root: Node, path: ReadonlyArray<string>): string => {
  const found = at(root, path)
  const command = ["causeway", ...path].join(" ")
  if (found.below.length === 0) {
    const sections = found.help.replace(/\n{2,}( +\S)/g, "\n$1")
    return `USAGE\n\n$ ${[command, found.usage].join(" ").trim()}\n\n${sections}`
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
          "causeway serve --help lists the variables that configure the service.",
          "causeway --completions bash, zsh or fish prints completions for a shell."
        ])
  ].join("\n")
}
