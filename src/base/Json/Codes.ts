/** The characters of JSON's grammar as code units, which are also their bytes in UTF-8. */

export const quote = 0x22
export const comma = 0x2c
export const minus = 0x2d
export const plus = 0x2b
export const dot = 0x2e
export const zero = 0x30
export const colon = 0x3a
export const upperE = 0x45
export const openBracket = 0x5b
export const backslash = 0x5c
export const closeBracket = 0x5d
export const lowerE = 0x65
export const lowerU = 0x75
export const openBrace = 0x7b
export const closeBrace = 0x7d

export const isSpace = (code: number | undefined): boolean =>
  code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09

export const isDigit = (code: number | undefined): boolean => code !== undefined && code >= zero && code <= 0x39

export const isHex = (code: number | undefined): boolean =>
  code !== undefined && (isDigit(code) || (code >= 0x41 && code <= 0x46) || (code >= 0x61 && code <= 0x66))

/** The bytes of an ASCII word. */
export const spell = (word: string): Uint8Array => Uint8Array.from(word, character => character.charCodeAt(0))

/** The characters that may follow a backslash: 1 at the index of each. */
export const escapable = new Uint8Array(256)
for (const code of spell('"\\/bfnrtu')) escapable[code] = 1
