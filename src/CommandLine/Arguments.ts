/** Orders and checks arguments before @effect/cli parses them, and suggests names for mistyped ones. The library requires options before other arguments, and takes a value such as `-5` for an option; here options may be anywhere. */

/** A command of the tree. */
export interface Node {
  readonly name: string
  /** Its subcommands. */
  readonly below: ReadonlyArray<Node>
  /** Its options, and whether they take a value. A name takes a value in all commands or in none. */
  readonly options: ReadonlyMap<string, boolean>
}

/** What arguments amount to. */
export type Arranged = {
  /** The names of the command. */
  readonly path: ReadonlyArray<string>
} & (
  | {
      /** The arguments in the order that @effect/cli requires, starting with the path. */
      readonly args: ReadonlyArray<string>
    }
  | {
      /** An argument that the command does not take. */
      readonly unknown: string
      /** The names that it takes there, for suggestions. */
      readonly known: ReadonlyArray<string>
    }
  /** An option without its value. */
  | { readonly missingValueOf: string }
  /** An option that is given twice, with different values. */
  | { readonly repeated: string }
)

/** The options of every command, and those of the root. */
const general: ReadonlyMap<string, boolean> = new Map([
  ["--help", false],
  ["-h", false]
])
const ofRoot: ReadonlyMap<string, boolean> = new Map([
  ["--version", false],
  ["--completions", true]
])

/** The options of a command, including those of every command, and whether they take a value. */
export const optionsAt = ({ options }: Node, isRoot: boolean): ReadonlyMap<string, boolean> =>
  new Map([...options, ...general, ...(isRoot ? ofRoot : [])])

const isOption = (argument: string): boolean => /^-(?:-[a-z]|[a-z]$)/i.test(argument)

/** All options of a command and its subcommands. */
const optionsOf = ({ below, options }: Node): ReadonlyMap<string, boolean> =>
  new Map([...options, ...below.flatMap(node => [...optionsOf(node)])])

interface Option {
  readonly name: string
  readonly value: string | undefined
}

/** Separates options from other arguments. */
const split = (args: ReadonlyArray<string>, known: ReadonlyMap<string, boolean>) => {
  const options: Array<Option> = []
  const others: Array<string> = []
  for (let index = 0; index < args.length; index++) {
    const argument = args[index] ?? ""
    if (argument === "--") {
      others.push(...args.slice(index + 1))
      break
    }
    if (!isOption(argument)) {
      others.push(argument)
      continue
    }
    const [, name = argument, , written] = /^(--[^=]+)(=(.*))?$/s.exec(argument) ?? []
    const isNext = written === undefined && known.get(name) === true && index + 1 < args.length
    options.push({ name, value: isNext ? args[++index] : written })
  }
  return { options, others }
}

/** Options without repetitions, such as of an alias and the command line; or the name of one with two values. */
const unique = (options: ReadonlyArray<Option>): ReadonlyArray<Option> | string => {
  const values = new Map<string, string | undefined>()
  for (const { name, value } of options) {
    if (values.has(name) && values.get(name) !== value) return name
    values.set(name, value)
  }
  return [...values].map(([name, value]) => ({ name, value }))
}

/** Orders arguments: the command, its options, and other arguments after `--`; or the first problem. */
export const arrange = (args: ReadonlyArray<string>, root: Node): Arranged => {
  const { options, others } = split(args, new Map([...optionsOf(root), ...general, ...ofRoot]))
  const path: Array<string> = []
  let node = root
  for (let next: Node | undefined = root; next !== undefined; ) {
    node = next
    next = node.below.find(({ name }) => name === others[0])
    if (next !== undefined) path.push(others.shift() ?? "")
  }
  const taken = optionsAt(node, node === root)
  const unknownOption = options.find(
    ({ name, value }) => !taken.has(name) || (value !== undefined && taken.get(name) === false)
  )
  if (unknownOption !== undefined) return { path, unknown: unknownOption.name, known: [...taken.keys()] }
  if (options.some(({ name }) => general.has(name))) return { path, args: [...path, "--help"] }
  const incomplete = options.find(({ name, value }) => value === undefined && taken.get(name) === true)
  if (incomplete !== undefined) return { path, missingValueOf: incomplete.name }
  const [unknown] = others
  if (unknown !== undefined && node.below.length > 0) {
    return { path, unknown, known: node.below.map(({ name }) => name) }
  }
  const once = unique(options)
  if (typeof once === "string") return { path, repeated: once }
  const words = once.flatMap(({ name, value }) => (value === undefined ? [name] : [name, value]))
  return { path, args: [...path, ...words, ...(others.length > 0 ? ["--", ...others] : [])] }
}

/** The Damerau-Levenshtein distance: insertions, deletions, replacements and transpositions of neighbors. */
export const distance = (from: string, to: string): number => {
  let beforeLast: ReadonlyArray<number> = []
  let last: ReadonlyArray<number> = Array.from({ length: to.length + 1 }, (_, index) => index)
  for (let row = 1; row <= from.length; row++) {
    const next = [row]
    for (let column = 1; column <= to.length; column++) {
      const isSame = from[row - 1] === to[column - 1]
      const isExchanged = row > 1 && column > 1 && from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1]
      next[column] = Math.min(
        (last[column] ?? 0) + 1,
        (next[column - 1] ?? 0) + 1,
        (last[column - 1] ?? 0) + (isSame ? 0 : 1),
        isExchanged ? (beforeLast[column - 2] ?? 0) + 1 : Number.POSITIVE_INFINITY
      )
    }
    beforeLast = last
    last = next
  }
  return last[to.length] ?? 0
}

/** Names that other programs use. */
const customary: Readonly<Record<string, string>> = {
  help: "--help",
  "-help": "--help",
  "-?": "--help",
  version: "--version",
  "-v": "--version",
  "-V": "--version",
  ls: "list",
  put: "set",
  rm: "delete"
}

/** The name most similar to a text, if one is similar. */
export const suggestion = (text: string, names: ReadonlyArray<string>): string | undefined => {
  const meant = customary[text]
  if (meant !== undefined && names.includes(meant)) return meant
  // The time grows with the square of the length.
  if (text.length > 40) return undefined
  const maxChanges = Math.max(1, Math.floor(text.replace(/^-+/, "").length / 3))
  const [nearest] = names
    .map(name => ({ name, changes: distance(text, name) }))
    .filter(({ changes }) => changes <= maxChanges)
    .sort((a, b) => a.changes - b.changes)
  return nearest?.name
}
