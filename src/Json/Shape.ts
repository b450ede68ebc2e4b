/**
 * The shape of JSON text, looked at before it is parsed.
 *
 * `JSON.parse` builds whatever it is given: a megabyte of brackets takes it a hundred times as long as one of text, and
 * what it builds may be nested deeper than recursion goes. To look at the brackets and commas costs a fraction of that.
 */

/** What a text may hold at most. */
export interface Shape {
  /** Levels of arrays and objects. */
  readonly levels: number
  /** Members of all objects and elements of all arrays together. */
  readonly members: number
}

const quote = 0x22
const comma = 0x2c
const backslash = 0x5c
const openBracket = 0x5b
const closeBracket = 0x5d
const openBrace = 0x7b
const closeBrace = 0x7d

/** Where a string of JSON text ends that begins at `start`; the text's end where it does not. */
const endOfString = (text: string, start: number): number => {
  for (let end = text.indexOf('"', start + 1); end !== -1; end = text.indexOf('"', end + 1)) {
    let before = end
    while (text.charCodeAt(before - 1) === backslash) before--
    if ((end - before) % 2 === 0) return end
  }
  return text.length
}

/**
 * How a text goes beyond a shape, to be put behind a noun, or `undefined`. It never says so of JSON text that is within;
 * text that is no JSON is for the parser.
 */
export const excess = (text: string, { levels, members }: Shape): string | undefined => {
  let depth = 0
  let count = 0
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === quote) at = endOfString(text, at)
    else if (code === comma) {
      if (++count > members) return tooMany(members)
    } else if (code === closeBracket || code === closeBrace) depth--
    else if (code === openBracket || code === openBrace) {
      if (++depth > levels) return `is nested more than ${levels} levels deep`
      // Its first member; an empty one counts as if it had one.
      if (++count > members) return tooMany(members)
    }
  }
  return undefined
}

const tooMany = (members: number): string => `has more than ${members} members and elements`

/** Characters of a text that needs no look: whatever it holds is parsed within a few milliseconds. */
const small = 16 * 1024

/** {@link excess} of a text that may be large. */
export const excessOfLarge = (text: string, shape: Shape): string | undefined =>
  text.length <= small ? undefined : excess(text, shape)
