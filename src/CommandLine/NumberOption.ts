import { Effect } from "effect"
import { HelpDoc, Options, ValidationError } from "./Library.ts"

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

/** An option with a whole number. */
export const wholeNumber = (name: string): Options.Options<number> =>
  checkedOption(
    name,
    text => (/^-?\d+$/.test(text) ? Number(text) : undefined),
    text => `: '${text}' is not a whole number`
  )

/** An option with one of several words. */
export const choice = <Word extends string>(name: string, words: ReadonlyArray<Word>): Options.Options<Word> =>
  checkedOption(
    name,
    text => words.find(word => word === text),
    () => ` takes ${words.join(", ")}`
  )

/** An option with a whole number of a unit. Its help names the default. */
export const numberOption = (name: string, unit: string, description: string, fallback: number) =>
  wholeNumber(name).pipe(
    Options.withPseudoName(unit),
    Options.withDescription(`${description}; default ${fallback}`),
    Options.withDefault(fallback)
  )
