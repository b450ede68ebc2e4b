import { Either } from "effect"
import * as JsonReader from "./JsonReader.ts"
import { type JsonProblem, problemOf } from "./JsonText.ts"
import * as PlainBody from "./PlainBody.ts"

export { Misplaced } from "./JsonReader.ts"

/**
 * Parses a request body and keeps each member named `value` as `RawJson`.
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
    catch: problemOf
  })
