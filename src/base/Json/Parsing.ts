/** Parsing of untrusted JSON text: its structure is checked before it is parsed, and lone surrogates are replaced. */
import { Either } from "effect"
import { backslash, closeBrace, closeBracket, comma, openBrace, openBracket, quote } from "./Scanner.ts"

export interface StructureLimits {
  /** Levels of arrays and objects. */
  readonly levels: number
  /** Members of all objects and elements of all arrays together. */
  readonly members: number
}

/** Whether the character at `end` follows an odd number of backslashes, counted from `from` on. */
const isEscaped = (text: string, from: number, end: number): boolean => {
  let before = end
  while (before > from && text.charCodeAt(before - 1) === backslash) before--
  return (end - before) % 2 === 1
}

/** The index after the end of the string whose content begins at `from`. */
const afterString = (text: string, from: number): number => {
  for (let end = text.indexOf('"', from); end !== -1; end = text.indexOf('"', end + 1)) {
    if (!isEscaped(text, from, end)) return end + 1
  }
  return text.length
}

/**
 * How a text exceeds the limits before it is parsed, as the predicate of a sentence, or `undefined`.
 *
 * A megabyte of brackets takes `JSON.parse` a hundred times as long as a megabyte of string, and the value may be
 * nested too deep for recursion. Counting takes a fraction of that. It looks at strings, brackets and commas only; the
 * parser checks the rest of the grammar.
 */
export const excess = (text: string, { levels, members }: StructureLimits): string | undefined => {
  let depth = 0
  let count = 0
  for (let at = 0; at < text.length; ) {
    const code = text.charCodeAt(at++)
    if (code === quote) at = afterString(text, at)
    else if (code === comma) count++
    else if (code === closeBracket || code === closeBrace) depth--
    else if (code === openBracket || code === openBrace) {
      if (++depth > levels) return `is nested more than ${levels} levels deep`
      // Its first member; an empty one counts as if it had one.
      count++
    } else continue
    if (count > members) return `has more than ${members} members and elements`
  }
  return undefined
}

/** A text of up to this number of characters is parsed within a few milliseconds, whatever its content. */
const small = 16 * 1024

/**
 * {@link excess} of a large text; `undefined` for a small one, unless it {@link mayBeIllFormed}: the search for lone
 * surrogates recurses as deep as the value is nested.
 */
export const excessOfLarge = (text: string, limits: StructureLimits, isSuspect = false): string | undefined =>
  text.length <= small && !isSuspect ? undefined : excess(text, limits)

/** The path of member names to a lone surrogate in a value; `undefined` if there is none. */
export const illFormedAt = (value: unknown): ReadonlyArray<string> | undefined => {
  if (typeof value === "string") return value.isWellFormed() ? undefined : []
  if (typeof value !== "object" || value === null) return undefined
  for (const [name, member] of Object.entries(value)) {
    const place = name.isWellFormed() ? illFormedAt(member) : []
    if (place !== undefined) return [name.toWellFormed(), ...place]
  }
  return undefined
}

/** Whether a value parsed from this text may have lone surrogates: only escapes can express them, not UTF-8. */
export const mayBeIllFormed = (text: string): boolean => /\\u[dD][89a-fA-F]/.test(text)

/**
 * The value with U+FFFD instead of lone surrogates, also in names; the same value if it has none. It recurses as deep as
 * the value is nested.
 */
export const toWellFormed = (value: unknown): unknown => {
  if (typeof value === "string") return value.toWellFormed()
  if (typeof value !== "object" || value === null) return value
  if (Array.isArray(value)) {
    const items = value.map(toWellFormed)
    return items.every((item, index) => item === value[index]) ? value : items
  }
  const members = Object.entries(value)
  let isSame = true
  for (const member of members) {
    const [name, before] = member
    member[0] = name.toWellFormed()
    member[1] = toWellFormed(before)
    isSame &&= member[0] === name && member[1] === before
  }
  return isSame ? value : Object.fromEntries(members)
}

export type JsonObject = Readonly<Record<string, unknown>>

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** Parses a text whose structure was checked. Fails with the predicate of a sentence. */
export const parseChecked = (text: string): Either.Either<unknown, string> => {
  try {
    return Either.right(JSON.parse(text))
  } catch {
    return Either.left("is not JSON")
  }
}

/** Parses a text within the limits, and replaces lone surrogates. Fails with the predicate of a sentence. */
export const parseWellFormed = (text: string, limits: StructureLimits): Either.Either<unknown, string> => {
  const isSuspect = mayBeIllFormed(text)
  const problem = excessOfLarge(text, limits, isSuspect)
  if (problem !== undefined) return Either.left(problem)
  return isSuspect ? Either.map(parseChecked(text), toWellFormed) : parseChecked(text)
}
