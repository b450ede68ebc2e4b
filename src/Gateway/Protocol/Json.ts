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

const quote = 0x22
const backslash = 0x5c
const openBracket = 0x5b
const closeBracket = 0x5d
const openBrace = 0x7b
const closeBrace = 0x7d

/** Where a string of JSON text ends that begins at `start`; the text's end where it does not. */
const endOfString = (text: string, start: number): number => {
  for (let at = start + 1; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === quote) return at
    if (code === backslash) at++
  }
  return text.length
}

/** Whether JSON text nests at most `most` levels of arrays and objects, found out at a fraction of what parsing costs. */
export const isTextWithinDepth = (text: string, most: number): boolean => {
  let depth = 0
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === quote) at = endOfString(text, at)
    else if (code === closeBracket || code === closeBrace) depth--
    else if ((code === openBracket || code === openBrace) && ++depth > most) return false
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
