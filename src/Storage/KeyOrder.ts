/**
 * The order of keys: that of their bytes in UTF-8, which is not that of JavaScript.
 */

/** Compares two well-formed texts by their bytes. */
export const compare = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b))

/** Where the keys that start with a prefix end: the least text after all of them, or nothing where there is none. */
export const endOfPrefix = (prefix: string): string | undefined => {
  const points = [...prefix].map(character => character.codePointAt(0)!)
  for (let last = points.pop(); last !== undefined; last = points.pop()) {
    if (last === 0x10ffff) continue
    // Surrogates are no characters of UTF-8: what follows U+D7FF is U+E000.
    return String.fromCodePoint(...points, last === 0xd7ff ? 0xe000 : last + 1)
  }
  return undefined
}
