/**
 * The order of arguments. @effect/cli wants options before other arguments, and takes a value such as `-5` for an option;
 * people write options anywhere.
 */

/** A command, and those below it. */
export interface Node {
  readonly name: string
  readonly below: ReadonlyArray<Node>
  /** The options that it takes, and whether they have a value. One name means the same in all commands. */
  readonly options: ReadonlyMap<string, boolean>
}

/** Arguments in the order in which @effect/cli takes them. */
export interface Arranged {
  /** The names of the command. */
  readonly path: ReadonlyArray<string>
  /** The arguments, those of the path included. */
  readonly args: ReadonlyArray<string>
}

/** An argument that the command does not take. */
export interface Stray {
  readonly path: ReadonlyArray<string>
  readonly stray: string
  /** What it may have been meant to be. */
  readonly known: ReadonlyArray<string>
}

/** An option behind which its value is missing. */
export interface Bare {
  readonly path: ReadonlyArray<string>
  readonly bare: string
}

/** What every command takes, and what the first one does. */
const general: ReadonlyMap<string, boolean> = new Map([
  ["--help", false],
  ["-h", false]
])
const ofRoot: ReadonlyMap<string, boolean> = new Map([
  ["--version", false],
  ["--completions", true]
])

/** The options that a command takes, those of all commands included, and whether they have a value. */
export const optionsAt = ({ options }: Node, isRoot: boolean): ReadonlyMap<string, boolean> =>
  new Map([...options, ...general, ...(isRoot ? ofRoot : [])])

const isOption = (argument: string): boolean => /^-(?:-[a-z]|[a-z]$)/i.test(argument)

/** All options of a command and of those below it. */
const optionsOf = ({ below, options }: Node): ReadonlyMap<string, boolean> =>
  new Map([...options, ...below.flatMap(node => [...optionsOf(node)])])

interface Option {
  readonly name: string
  readonly value: string | undefined
}

/** Tells options and other arguments apart. */
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

/** Brings arguments into order: the command, its options, and its other arguments behind `--`. */
export const arrange = (args: ReadonlyArray<string>, root: Node): Arranged | Stray | Bare => {
  const { options, others } = split(args, new Map([...optionsOf(root), ...general, ...ofRoot]))
  const path: Array<string> = []
  let node = root
  for (let next: Node | undefined = root; next !== undefined; ) {
    node = next
    next = node.below.find(({ name }) => name === others[0])
    if (next !== undefined) path.push(others.shift() ?? "")
  }
  const taken = optionsAt(node, node === root)
  const unknown = options.find(
    ({ name, value }) => !taken.has(name) || (value !== undefined && taken.get(name) === false)
  )
  if (unknown !== undefined) return { path, stray: unknown.name, known: [...taken.keys()] }
  if (options.some(({ name }) => general.has(name))) return { path, args: [...path, "--help"] }
  const bare = options.find(({ name, value }) => value === undefined && taken.get(name) === true)
  if (bare !== undefined) return { path, bare: bare.name }
  const [stray] = others
  if (stray !== undefined && node.below.length > 0) return { path, stray, known: node.below.map(({ name }) => name) }
  const words = options.flatMap(({ name, value }) => (value === undefined ? [name] : [name, value]))
  return { path, args: [...path, ...words, ...(others.length > 0 ? ["--", ...others] : [])] }
}
