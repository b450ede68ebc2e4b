/** The code units of JSON text, and what they are good for. */

/** The code units of a text. Bytes stand for those of ASCII. */
export type Codes = Uint8Array | Uint16Array

/** Longer text is not unfolded for it, beside which it would take up three times the room. */
const longestUnfolded = 1024 * 1024

/** The code units of a text, unless it is very long. */
export const codesOf = (text: string): Codes | undefined => {
  if (text.length > longestUnfolded) return undefined
  const codes = new Uint16Array(text.length)
  for (let index = 0; index < text.length; index++) codes[index] = text.charCodeAt(index)
  return codes
}

export const quote = 0x22
export const comma = 0x2c
export const minus = 0x2d
export const plus = 0x2b
export const dot = 0x2e
export const zero = 0x30
export const one = 0x31
export const nine = 0x39
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

export const isDigit = (code: number | undefined): boolean => code !== undefined && code >= zero && code <= nine

export const isHex = (code: number | undefined): boolean =>
  code !== undefined && (isDigit(code) || (code >= 0x41 && code <= 0x46) || (code >= 0x61 && code <= 0x66))

const tableOf = (text: string): Uint8Array => {
  const table = new Uint8Array(128)
  for (const character of text) table[character.charCodeAt(0)] = 1
  return table
}

/** What may follow a backslash. */
export const escapable = tableOf('"\\/bfnrtu')

/** The code units of a word of ASCII. */
export const spell = (word: string): Uint8Array => Uint8Array.from(word, character => character.charCodeAt(0))
