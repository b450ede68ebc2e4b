/** JSON as text, because `JSON.parse` would round large numbers and reorder members whose names look like numbers. */
import * as ExactJson from "../base/Json/ExactJson.ts"
import { JsonProblem } from "../base/Json/JsonText.ts"
import { isObject, type JsonObject } from "../base/Json/Parsing.ts"
import type { ReadMembers } from "../Client/EntryLines.ts"

/** Why a text is not JSON that the store accepts. */
export interface Problem {
  readonly message: string
  /** The position, in UTF-16 code units from the start. */
  readonly offset: number
}

/** Line and column of an offset, from 1. */
export const positionOf = (text: string, offset: number): { readonly line: number; readonly column: number } => {
  const before = text.slice(0, offset)
  return { line: before.split("\n").length, column: offset - (before.lastIndexOf("\n") + 1) + 1 }
}

/** The first problem of a text; `undefined` if it is one JSON value that the store accepts. */
export const problemOf = (text: string): Problem | undefined => {
  const found = ExactJson.value(text)
  if (!(found instanceof JsonProblem)) return undefined
  const { expected, message, offset = 0 } = found
  const sentence = expected === undefined ? message : `${expected} is expected`
  return { message: sentence.charAt(0).toUpperCase() + sentence.slice(1), offset }
}

/** A JSON text without white space. */
export const compact = (text: string): string => {
  const found = ExactJson.value(text)
  if (found instanceof JsonProblem) throw new SyntaxError(found.message)
  return found.text
}

/** The end of the token that starts at an offset of a valid text. */
const endOfToken = (text: string, start: number): number => {
  let at = start + 1
  if (text[start] !== '"') return at
  while (text[at] !== '"') at += text[at] === "\\" ? 2 : 1
  return at + 1
}

/** A JSON text with one member or element per line. Names, numbers and strings keep their spelling. */
export const format = (text: string): string => {
  const compacted = compact(text)
  const parts: Array<string> = []
  let line = "\n"
  for (let at = 0; at < compacted.length; ) {
    const start = at
    const first = compacted[start]!
    at = endOfToken(compacted, start)
    const isOpening = first === "{" || first === "["
    const isEmpty = isOpening && (compacted[at] === "}" || compacted[at] === "]")
    if (isEmpty) at++
    else if (isOpening) line += "  "
    else if (first === "}" || first === "]") {
      line = line.slice(0, -2)
      parts.push(line)
    }
    parts.push(compacted.slice(start, at))
    if (first === ":") parts.push(" ")
    else if (first === "," || (isOpening && !isEmpty)) parts.push(line)
  }
  return parts.join("")
}

/** An entry or a change with its value as text. */
const withText = (record: unknown): unknown =>
  isObject(record) && "value" in record ? { ...record, value: ExactJson.textOf(record.value) } : record

/** Parses an answer of the service or a frame of the change feed, except the values of entries and changes. */
export const parse = (text: string): never => {
  const found = ExactJson.parse(text)
  if (!isObject(found)) return found as never
  const lists = Object.entries(found).filter(([, member]) => Array.isArray(member)) as Array<[string, Array<unknown>]>
  return {
    ...(withText(found) as JsonObject),
    ...Object.fromEntries(lists.map(([name, records]) => [name, records.map(withText)]))
  } as never
}

/** The members of a line of an import, with the value as text. */
export const readMembers: ReadMembers<string> = text => {
  const read = ExactJson.readMembers(text)
  return "problem" in read ? read : { members: withText(read.members) as { readonly value?: string } }
}

type Colored = { readonly text: string; readonly kind: "name" | "string" | "number" | "word" | "other" }

const pieces = /"(?:[^"\\\n]|\\.)*"?(\s*:)?|-?\d[\d.eE+-]*|\b(?:true|false|null)\b/g

/** Splits a text into parts for coloring. The text may be invalid. */
export const colored = (text: string): ReadonlyArray<Colored> => {
  const parts: Array<Colored> = []
  let from = 0
  for (const match of text.matchAll(pieces)) {
    if (match.index > from) parts.push({ text: text.slice(from, match.index), kind: "other" })
    const [piece, colon] = match
    const kind = colon !== undefined ? "name" : piece[0] === '"' ? "string" : /^[tfn]/.test(piece) ? "word" : "number"
    const shown = colon === undefined ? piece : piece.slice(0, piece.length - colon.length)
    parts.push({ text: shown, kind })
    if (colon !== undefined) parts.push({ text: colon, kind: "other" })
    from = match.index + piece.length
  }
  if (from < text.length) parts.push({ text: text.slice(from), kind: "other" })
  return parts
}
