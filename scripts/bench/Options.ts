/** The options of a benchmark on its command line. */
import { type ParseArgsConfig, parseArgs } from "node:util"
import { Effect } from "effect"
import { BenchFailed } from "./BenchFailed.ts"

/** An option with a value. */
export const text = { type: "string" } as const

/** An option without one. */
export const flag = { type: "boolean", default: false } as const

/** Parses arguments strictly. */
export const parse = <const Parsed extends ParseArgsConfig>(config: Parsed) =>
  Effect.try({
    try: () => parseArgs({ ...config, strict: true }),
    catch: error => new BenchFailed({ reason: error instanceof Error ? error.message : String(error) })
  })

/** Refuses unknown names of cases. */
export const requireKnown = (
  names: ReadonlyArray<string>,
  cases: ReadonlyArray<string>
): Effect.Effect<void, BenchFailed> => {
  const unknown = names.find(name => !cases.includes(name))
  return unknown === undefined
    ? Effect.void
    : new BenchFailed({ reason: `there is no case ${unknown}; there are ${cases.join(", ")}` })
}

/** The numbers that an option accepts. */
export interface Bounds {
  readonly min: number
  readonly max: number
  readonly whole: boolean
}

/** The number of an option, or the default without the option. */
export const number = (
  name: string,
  given: string | undefined,
  otherwise: number,
  { max, min, whole }: Bounds
): Effect.Effect<number, BenchFailed> => {
  if (given === undefined) return Effect.succeed(otherwise)
  const value = given.trim() === "" ? Number.NaN : Number(given)
  return value >= min && value <= max && (!whole || Number.isInteger(value))
    ? Effect.succeed(value)
    : new BenchFailed({
        reason: `--${name} must be a ${whole ? "whole " : ""}number from ${min} to ${max}, not ${given}`
      })
}
