import { backslash, closeBrace, closeBracket, comma, openBrace, openBracket, quote } from "./Codes.ts"

/** What a text may hold at most. */
export interface Shape {
  /** Levels of arrays and objects. */
  readonly levels: number
  /** Members of all objects and elements of all arrays together. */
  readonly members: number
}

/** Whether the character at `end` follows an odd number of backslashes, of which none stands before `from`. */
const isEscaped = (text: string, from: number, end: number): boolean => {
  let before = end
  while (before > from && text.charCodeAt(before - 1) === backslash) before--
  return (end - before) % 2 === 1
}

/**
 * Counts the levels and members of JSON text before it is parsed, or while it arrives in pieces.
 *
 * `JSON.parse` builds whatever it is given: a megabyte of brackets takes it a hundred times as long as a megabyte of
 * string, and what it builds may be nested deeper than recursion goes. To count takes a fraction of that. Strings,
 * brackets and commas are all that is known here of the grammar; the rest is for the parser.
 */
export class ShapeCounter {
  #depth = 0
  #count = 0
  #isInString = false
  #isEscaped = false

  constructor(private readonly shape: Shape) {}

  /**
   * How the text goes beyond the shape with its next piece, to be put behind a noun, or `undefined`. The characters
   * that matter are ASCII, so a piece of UTF-8 may be given as Latin-1.
   */
  add(piece: string): string | undefined {
    const { levels, members } = this.shape
    let depth = this.#depth
    let count = this.#count
    for (let at = this.#isInString ? this.#skipString(piece, this.#isEscaped ? 1 : 0) : 0; at < piece.length; ) {
      const code = piece.charCodeAt(at++)
      if (code === quote) at = this.#skipString(piece, at)
      else if (code === comma) count++
      else if (code === closeBracket || code === closeBrace) depth--
      else if (code === openBracket || code === openBrace) {
        if (++depth > levels) return `is nested more than ${levels} levels deep`
        // Its first member; an empty one counts as if it had one.
        count++
      } else continue
      if (count > members) return `has more than ${members} members and elements`
    }
    this.#depth = depth
    this.#count = count
    return undefined
  }

  /** The place behind a string that goes on at `from`. */
  #skipString(piece: string, from: number): number {
    this.#isInString = false
    for (let end = piece.indexOf('"', from); end !== -1; end = piece.indexOf('"', end + 1)) {
      if (!isEscaped(piece, from, end)) return end + 1
    }
    this.#isInString = true
    this.#isEscaped = isEscaped(piece, from, piece.length)
    return piece.length
  }
}

/** How a text goes beyond a shape, to be put behind a noun, or `undefined`. */
export const excess = (text: string, shape: Shape): string | undefined => new ShapeCounter(shape).add(text)

/** Characters of a text that is parsed within a few milliseconds, whatever it holds. */
const small = 16 * 1024

/** {@link excess} of a text that may be large. */
export const excessOfLarge = (text: string, shape: Shape): string | undefined =>
  text.length <= small ? undefined : excess(text, shape)
