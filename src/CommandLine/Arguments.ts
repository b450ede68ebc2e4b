/**
 * Orders and checks arguments before @effect/cli parses them. It requires options before other arguments, and takes a
 * value such as `-5` for an option. Here options may be anywhere.
 */

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
