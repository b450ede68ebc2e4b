import { Options } from "./Library.ts"

/** An option with a whole number of a unit. Its help names the default. */
export const numberOption = (name: string, unit: string, description: string, fallback: number) =>
  Options.integer(name).pipe(
    Options.withPseudoName(unit),
    Options.withDescription(`${description}; default ${fallback}`),
    Options.withDefault(fallback)
  )
