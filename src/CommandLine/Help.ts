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

/** The help of the command at a path; `undefined` if it has no subcommands. */
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
    `${command} <command> --help lists the arguments of a command.`,
    ...(path.length > 0
      ? []
      : [
          "causeway serve --help lists the variables that configure the service.",
          "causeway --completions bash, zsh or fish prints completions for a shell."
        ])
  ].join("\n")
}

/** The library's lines about the type of an argument, and about every optional one. */
const boilerplate = /^ +(?:A user-defined piece of text|A true or false value|An integer|This setting is optional)\.$/

/** The library's help of one command without boilerplate. */
export const compact = (text: string, path: ReadonlyArray<string>): string => {
  const usage = text.indexOf("USAGE")
  const lines = text.slice(Math.max(0, usage)).split("\n")
  return lines
    .filter(line => !boilerplate.test(line))
    .join("\n")
    .replace(/^\$ \S+/m, `$ causeway ${path.join(" ")}`)
    .replace(/\n{2,}( +\S)/g, "\n$1")
    .replace(/\n{3,}/g, "\n\n")
    .trim()
}
