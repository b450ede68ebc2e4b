/** Escapes of JSON can say halves of surrogate pairs, which are no Unicode. */
import { Either } from "effect"
import { excess, excessOfLarge, type Shape } from "./Shape.ts"

/** Where a value holds half of a surrogate pair, as a path of member names; `undefined` if it holds none. */
export const illFormedAt = (value: unknown): ReadonlyArray<string> | undefined => {
  if (typeof value === "string") return value.isWellFormed() ? undefined : []
  if (typeof value !== "object" || value === null) return undefined
  for (const [name, member] of Object.entries(value)) {
    const place = name.isWellFormed() ? illFormedAt(member) : []
    if (place !== undefined) return [name.toWellFormed(), ...place]
  }
  return undefined
}

/** Whether JSON text from UTF-8 may stand for such a value. */
export const mayBeIllFormed = (text: string): boolean => /\\u[dD][89a-fA-F]/.test(text)

/** The value with U+FFFD, the replacement character, for each half of a surrogate pair, in names too. */
const toWellFormed = (value: unknown): unknown => {
  if (typeof value === "string") return value.toWellFormed()
  if (typeof value !== "object" || value === null) return value
  if (Array.isArray(value)) return value.map(toWellFormed)
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name.toWellFormed(), toWellFormed(member)]))
}

/** The value of a text within a shape, made well-formed, or what is wrong with the text. */
export const parseWellFormed = (text: string, shape: Shape): Either.Either<unknown, string> => {
  const isSuspect = mayBeIllFormed(text)
  // toWellFormed recurses as deep as the value is nested.
  const problem = isSuspect ? excess(text, shape) : excessOfLarge(text, shape)
  if (problem !== undefined) return Either.left(problem)
  try {
    const value: unknown = JSON.parse(text)
    return Either.right(isSuspect ? toWellFormed(value) : value)
  } catch {
    return Either.left("is not JSON")
  }
}
