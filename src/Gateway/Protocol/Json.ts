import { Schema } from "effect"
import { jsonDepth } from "./Limits.ts"

const childrenOf = (value: unknown): ReadonlyArray<unknown> =>
  Array.isArray(value) ? value : typeof value === "object" && value !== null ? Object.values(value) : []

const isContainer = (value: unknown): boolean => typeof value === "object" && value !== null

/**
 * Whether a parsed JSON value nests at most `most` levels of arrays and objects.
 *
 * It goes level by level without recursion, since `JSON.parse` reads what `JSON.stringify` overflows at.
 */
export const isWithinDepth = (value: unknown, most: number): boolean => {
  let level: ReadonlyArray<unknown> = isContainer(value) ? [value] : []
  for (let depth = 0; level.length > 0; depth++) {
    if (depth === most) return false
    level = level.flatMap(container => childrenOf(container).filter(isContainer))
  }
  return true
}

/** Any JSON value of at most {@link jsonDepth} levels, taken as it is: odd member names and their order survive. */
export const Json = Schema.Unknown.pipe(
  Schema.filter(value => value !== undefined && isWithinDepth(value, jsonDepth), {
    message: () => `must be a JSON value of at most ${jsonDepth} levels`,
    description: `Any JSON value of at most ${jsonDepth} levels.`,
    jsonSchema: {}
  })
)
