import { Schema } from "effect"
import { jsonDepth } from "./Limits.ts"

/**
 * Whether a parsed JSON value nests at most `most` levels of arrays and objects.
 *
 * It goes no deeper than that itself, since `JSON.parse` reads what recursion and `JSON.stringify` overflow at.
 */
export const isWithinDepth = (value: unknown, most: number): boolean => {
  if (typeof value !== "object" || value === null) return true
  if (most === 0) return false
  if (Array.isArray(value)) return value.every(item => isWithinDepth(item, most - 1))
  for (const name in value) if (!isWithinDepth(Reflect.get(value, name), most - 1)) return false
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
