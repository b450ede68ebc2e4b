/** Sanitizes untrusted text for a terminal. */
import { identity, Record } from "effect"
import { escapeOf, pictureOf, replaceHidden } from "../../base/HiddenCharacters.ts"

/** The codes that begin and end a style (ECMA-48, 8.3.117). */
const styles = {
  dim: [2, 22],
  bold: [1, 22],
  red: [31, 39],
  green: [32, 39],
  yellow: [33, 39],
  cyan: [36, 39]
} as const

/** Functions that color text, or return it unchanged. */
export type Paint = Readonly<Record<keyof typeof styles, (text: string) => string>>

/** For files, pipes and terminals without colors. */
export const plain: Paint = Record.map(styles, () => identity<string>)

/** For terminals. */
export const colored: Paint = Record.map(
  styles,
  ([on, off]) =>
    (text: string) =>
      text === "" ? "" : `\u001b[${on}m${text}\u001b[${off}m`
)

/**
 * A text with visible characters instead of those that move the cursor, change the terminal, or are hidden. A line may
 * end with carriage returns. A match begins only at the first of them: otherwise many without a line feed would take
 * quadratic time.
 */
export const clean = (text: string): string => replaceHidden(text.replace(/(?<!\r)\r+\n/g, "\n"), "text", pictureOf)

/** The same for a part of a text whose other parts are sanitized separately. */
export const cleanPart = (text: string): string => replaceHidden(text.replaceAll("\r", ""), "part", pictureOf)

/** The same for a name, which stays in one line. Names that differ look different, except spaces at their ends. */
export const cleanName = (name: string): string => replaceHidden(name, "name", pictureOf)

/** The text of a failure. It is sanitized here, and not where messages are made, so that no message can be forgotten. */
export const failureText = ({ hint, message }: { readonly message: string; readonly hint?: string }): string =>
  clean(hint === undefined ? message : `${message}\n${hint}`)

/**
 * Escapes such characters in a JSON text. Carriage returns, which a JSON text has only between values, are left out. The
 * value does not change.
 */
export const cleanJson = (text: string): string => replaceHidden(text.replaceAll("\r", ""), "json", escapeOf)

/** The maximum number of characters and lines of a text. */
const max = { characters: 2000, lines: 20 }

/** Truncates a long text and appends its length. */
export const clip = (text: string): string => {
  const lines = text.split("\n")
  if (text.length <= max.characters && lines.length <= max.lines) return text
  const shown = lines.slice(0, max.lines).join("\n").slice(0, max.characters)
  // Do not split a surrogate pair.
  const whole = /[\ud800-\udbff]$/.test(shown) ? shown.slice(0, -1) : shown
  return `${whole}… (${count(text.length)} characters)`
}

/** Any value as sanitized text: strings unchanged, others as JSON. */
export const show = (value: unknown): string =>
  clip(clean(typeof value === "string" ? value : (JSON.stringify(value) ?? "")))

/** A whole number with separators. */
export const count = (number: number): string => number.toLocaleString("en")

/** Indents all lines except the first. */
export const indent = (text: string): string => text.replace(/\n(?=.)/g, "\n  ")
