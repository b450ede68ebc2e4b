/**
 * Stored values travel as JSON text (RFC 8259, within I-JSON, RFC 7493): what a client wrote is what a
 * reader gets back, member order and odd names included, and no request parses and prints a value again.
 */
import { Either } from "effect"
import * as JsonReader from "./JsonReader.ts"
import { JsonProblem, JsonText, RawJson } from "./JsonText.ts"
import * as PlainBody from "./PlainBody.ts"

export { Misplaced } from "./JsonReader.ts"
export { JsonProblem, JsonText, RawJson } from "./JsonText.ts"

/**
 * Parses a request body and keeps each member named `value` as {@link RawJson}.
 *
 * Refused beside what is no JSON: nesting beyond `maxDepth` levels, repeated member names, numbers that a double cannot
 * hold, more than `maxOperations` in the `operations` of a batch, and values of more than `maxValue` characters. An
 * array or object in any other place comes as {@link Misplaced}. Whoever has the text's code units gives them along.
 */
export const parseBody = (
  text: string,
  maxDepth: number,
  maxOperations = Number.POSITIVE_INFINITY,
  codes: PlainBody.Codes | undefined = PlainBody.codesOf(text),
  maxValue = Number.POSITIVE_INFINITY
): Either.Either<unknown, JsonProblem> => {
  const plain = codes && PlainBody.read(text, codes, maxDepth, maxOperations, maxValue)
  return plain === undefined ? parseAny(text, maxDepth, maxOperations, maxValue) : Either.right(plain)
}

/** `parseBody` of any text whatsoever, in three times the time. */
export const parseAny = (
  text: string,
  maxDepth: number,
  maxOperations: number,
  maxValue = Number.POSITIVE_INFINITY
): Either.Either<unknown, JsonProblem> =>
  Either.try({
    try: () => JsonReader.read(text, { depth: maxDepth, operations: maxOperations, valueChars: maxValue }),
    catch: error => (error instanceof JsonProblem ? error : new JsonProblem(messageOf(error)))
  })

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/**
 * The text of a value that is already in memory: {@link RawJson} as it came, anything else printed.
 *
 * Refused: what JSON cannot say (`undefined`, functions, bigint, cycles, infinities) and nesting beyond `maxDepth`.
 */
export const fromUnknown = (value: unknown, maxDepth: number): Either.Either<JsonText, JsonProblem> => {
  if (value instanceof RawJson) return Either.right(value.text)
  return Either.try({
    try: () => {
      checkTree(value, maxDepth)
      const text: string | undefined = JSON.stringify(value)
      if (text === undefined) throw new JsonProblem("the value says of itself that it is none in JSON")
      return JsonText(text)
    },
    catch: error => (error instanceof JsonProblem ? error : new JsonProblem(messageOf(error)))
  })
}

const checkTree = (value: unknown, levelsLeft: number): void => {
  if (typeof value === "number" && !Number.isFinite(value)) throw new JsonProblem(`${value} is not a JSON number`)
  if (value === undefined || typeof value === "function" || typeof value === "symbol") {
    throw new JsonProblem(`${typeof value} is not a JSON value`)
  }
  if (typeof value !== "object" || value === null) return
  if (levelsLeft === 0) throw new JsonProblem("JSON is nested too deep, or refers to itself")
  // A member that is undefined is left out in print, but an element would turn into null.
  const children = Array.isArray(value) ? value : Object.values(value).filter(child => child !== undefined)
  for (const child of children) checkTree(child, levelsLeft - 1)
}

/** The parsed form, for code in the same process that wants the value rather than its text. */
export const toUnknown = (text: JsonText): unknown => JSON.parse(text)
