/**
 * JSON text of an upstream service, read with care: it may nest without end, and say halves of surrogate pairs, which
 * are no Unicode.
 */
import { Either } from "effect"
import { excess, excessOfLarge, type Shape } from "./Shape.ts"
import { mayBeIllFormed } from "./Unicode.ts"

/** The value with a replacement character (U+FFFD) for each half of a surrogate pair, in names too. */
const repaired = (value: unknown): unknown => {
  if (typeof value === "string") return value.toWellFormed()
  if (typeof value !== "object" || value === null) return value
  if (Array.isArray(value)) return value.map(repaired)
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name.toWellFormed(), repaired(member)]))
}

/** The value of a text, or what is wrong with the text. */
export const parse = (text: string, shape: Shape): Either.Either<unknown, string> => {
  const isSuspect = mayBeIllFormed(text)
  // To repair a value goes as deep as the value does.
  const problem = isSuspect ? excess(text, shape) : excessOfLarge(text, shape)
  if (problem !== undefined) return Either.left(problem)
  try {
    const value: unknown = JSON.parse(text)
    return Either.right(isSuspect ? repaired(value) : value)
  } catch {
    return Either.left("is not JSON")
  }
}
