/**
 * Characters that are not seen, or that change the direction or the place of others. With them, a text can be displayed
 * as a different one ("Trojan Source", CVE-2021-42574; Unicode Technical Report 36).
 */

/** Control characters except white space, Unicode's default ignorable code points, and bidirectional controls. */
const hidden = [
  String.raw`\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f`,
  String.raw`\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb`,
  String.raw`\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}`
].join("")

const pictograph = String.raw`\p{Extended_Pictographic}(?:[\ufe0e\ufe0f]|\p{Emoji_Modifier}\ufe0f?)?`

/** Emoji, which may consist of several joined ones, keycaps, and flags with the tags of a region. */
const emoji = [
  String.raw`\u{1f3f4}[\u{e0030}-\u{e0039}\u{e0061}-\u{e007a}]{3,6}\u{e007f}`,
  String.raw`${pictograph}(?:\u200d${pictograph})*`,
  String.raw`[0-9#*]\ufe0f\u20e3`
].join("|")

/** The scripts in which joiners are part of the spelling. */
const joining = ["Arab", "Beng", "Deva", "Gujr", "Guru", "Khmr", "Knda", "Mlym", "Mong", "Orya", "Sinh", "Syrc"]
  .concat(["Taml", "Telu"])
  .map(script => String.raw`\p{Script=${script}}`)
  .join("")

/** Joiners and variation selectors after letters whose spelling or shape has them. */
const spelling = [
  String.raw`[\u200c\u200d](?<=[${joining}].)`,
  String.raw`[\ufe00-\ufe02\u{e0100}-\u{e01ef}](?<=\p{Script=Han}.)`,
  String.raw`[\u180b-\u180d\u180f](?<=\p{Script=Mong}.)`
].join("|")

/**
 * The kind of a text, which decides which of its characters count as hidden:
 * - `name`: a name, in which a line break is hidden too;
 * - `text`: a whole text with lines, in any script;
 * - `part`: any part of a text. An emoji may start in the part before, so its joiners do not count;
 * - `json`: a JSON text, whose white space does not count.
 */
export type TextKind = "name" | "text" | "part" | "json"

/** The expressions match what is not hidden too; only what is hidden is captured. */
const sources: Readonly<Record<TextKind, () => string>> = {
  name: () => String.raw`${emoji}|([\t\n\r${hidden}])`,
  text: () => String.raw`${emoji}|${spelling}|([\r${hidden}])`,
  part: () => String.raw`[\u200c\u200d\ufe0e\ufe0f]|([\r${hidden}])`,
  json: () => `${emoji}|([${hidden}])`
}

const expressions = new Map<TextKind, RegExp>()

/** Expressions are made when they are needed, because that takes a millisecond. */
const expressionOf = (kind: TextKind): RegExp => {
  const expression = expressions.get(kind) ?? new RegExp(sources[kind](), "gu")
  expressions.set(kind, expression)
  return expression
}

export interface HiddenCharacter {
  /** UTF-16 code units from the start. */
  readonly offset: number
  readonly character: string
}

export const hiddenIn = (text: string, kind: TextKind): ReadonlyArray<HiddenCharacter> =>
  [...text.matchAll(expressionOf(kind))].flatMap(({ 1: character, index }) =>
    character === undefined ? [] : [{ offset: index, character }]
  )

export const replaceHidden = (text: string, kind: TextKind, by: (character: string) => string): string =>
  text.replace(expressionOf(kind), (found, character?: string) => (character === undefined ? found : by(character)))

/** The code point of a character, such as `U+202E`. */
export const codePointOf = (character: string): string =>
  `U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}`

/** A character that stands for a hidden one, such as `␊`, or its code point, such as `<U+202E>`. */
export const pictureOf = (character: string): string => {
  const code = character.codePointAt(0)!
  if (code <= 0x20) return String.fromCharCode(0x2400 + code)
  return code === 0x7f ? "\u2421" : `<${codePointOf(character)}>`
}

/** The escape of a character in a JSON text, such as `\u202e`. */
export const escapeOf = (character: string): string =>
  Array.from({ length: character.length }, (_, index) => character.charCodeAt(index))
    .map(unit => `\\u${unit.toString(16).padStart(4, "0")}`)
    .join("")
