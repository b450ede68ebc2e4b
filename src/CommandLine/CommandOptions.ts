/** The options and arguments of several commands, and what they are made of. */
import { Effect, Option } from "effect"
import { type CommandFailed, wrong } from "./CommandFailed.ts"
import { Args, HelpDoc, Options, ValidationError } from "./Library.ts"

/** An option whose text is checked. The library's own messages do not name the option. */
const checkedOption = <A>(
  name: string,
  read: (text: string) => A | undefined,
  problem: (text: string) => string
): Options.Options<A> =>
  Options.mapEffect(Options.text(name), text => {
    const value = read(text)
    return value === undefined
      ? Effect.fail(ValidationError.invalidValue(HelpDoc.p(`--${name}${problem(text)}`)))
      : Effect.succeed(value)
  })

const integer = (name: string): Options.Options<number> =>
  checkedOption(
    name,
    text => (/^-?\d+$/.test(text) ? Number(text) : undefined),
    text => `: '${text}' is not a whole number`
  )

/** An option with a whole number, called `unit` in the help; absent by default. */
export const wholeNumber = (name: string, unit: string, description: string): Options.Options<Option.Option<number>> =>
  integer(name).pipe(Options.withPseudoName(unit), Options.withDescription(description), Options.optional)

/** An option with text, called `pseudoName` in the help; absent by default. */
export const text = (name: string, description: string, pseudoName = "text"): Options.Options<Option.Option<string>> =>
  Options.text(name).pipe(Options.withPseudoName(pseudoName), Options.withDescription(description), Options.optional)

/** An option without a value. */
export const flag = (name: string, description: string): Options.Options<boolean> =>
  Options.boolean(name).pipe(Options.withDescription(description))

export const choice = <Word extends string>(name: string, words: ReadonlyArray<Word>): Options.Options<Word> =>
  checkedOption(
    name,
    text => words.find(word => word === text),
    () => ` takes ${words.join(", ")}`
  )

/** An option with a whole number of a unit. Its help names the default. */
export const numberOption = (name: string, unit: string, description: string, fallback: number) =>
  integer(name).pipe(
    Options.withPseudoName(unit),
    Options.withDescription(`${description}; default ${fallback}`),
    Options.withDefault(fallback)
  )

/** The arguments that address an entry. */
export const namespace = Args.text({ name: "namespace" }).pipe(Args.withDescription("Such as tenant:demo/notes"))
export const key = Args.text({ name: "key" }).pipe(Args.withDescription("Such as hello"))

/** The option for a precondition on the version. */
export const ifVersion = (description: string) => wholeNumber("if-version", "version", description)

/** Fails with exit code 2 for a version that no entry can have. Without this check a precondition would never hold. */
export const checkVersion = (version: Option.Option<number>, minimum: 0 | 1): Effect.Effect<void, CommandFailed> =>
  Option.exists(version, version => version < minimum)
    ? wrong(`--if-version must be ${minimum} or more`, "Versions of entries start at 1.")
    : Effect.void

/** The option for the actor of a write. */
export const actor = text("actor", "Recorded as the author; default api", "name")

export const prefix = text("prefix", "Only keys that start with this")

/** An option of the client if the user gives it. */
export const given = <A, Name extends string>(name: Name, option: Option.Option<A>): Partial<Record<Name, A>> =>
  Option.match(option, {
    onNone: () => ({}),
    onSome: value => ({ [name]: value }) as Partial<Record<Name, A>>
  })
