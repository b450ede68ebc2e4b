/**
 * JSON as text. `JSON.parse` would round large numbers and reorder members whose names look like numbers. Values are
 * therefore read, shown and written as text.
 */

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

/** The kinds of tokens. Structural characters are their own kinds. */
type TokenKind = "string" | "number" | "word" | "{" | "}" | "[" | "]" | ":" | ","

interface Token {
  readonly kind: TokenKind
  readonly start: number
  readonly end: number
}

class Malformed extends Error {
  constructor(
    message: string,
    readonly offset: number
  ) {
    super(message)
  }
}

const white = /[ \t\n\r]*/y
const number = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y
const escape = /\\(?:["\\/bfnrt]|u[\da-fA-F]{4})/y
const word = /true|false|null/y
const looseWord = /[^\s{}[\]:,"]+/y

/** The end of the match of a sticky pattern at an offset, or -1. */
const endOf = (pattern: RegExp, text: string, at: number): number => {
  pattern.lastIndex = at
  return pattern.test(text) ? pattern.lastIndex : -1
}

/** The largest value of `LIMIT_JSON_DEPTH`. A service with a smaller one refuses the write itself. */
const maxDepth = 1000

/** Reads the tokens of a text. */
class Tokens {
  #at = 0
  token: Token | undefined

  constructor(readonly text: string) {
    this.next()
  }

  next(): Token | undefined {
    const { text } = this
    const start = endOf(white, text, this.#at)
    if (start >= text.length) {
      this.#at = text.length
      this.token = undefined
      return undefined
    }
    this.token = this.#read(start)
    this.#at = this.token.end
    return this.token
  }

  get offset(): number {
    return this.token?.start ?? this.text.length
  }

  #read(start: number): Token {
    const { text } = this
    const character = text[start]!
    if ("{}[]:,".includes(character)) return { kind: character as TokenKind, start, end: start + 1 }
    if (character === '"') return { kind: "string", start, end: endOfString(text, start) }
    const numberEnd = endOf(number, text, start)
    if (numberEnd !== -1 && endOf(looseWord, text, numberEnd) === -1) {
      if (!Number.isFinite(Number(text.slice(start, numberEnd)))) throw new Malformed("The number is too large", start)
      return { kind: "number", start, end: numberEnd }
    }
    const wordEnd = endOf(word, text, start)
    if (wordEnd !== -1 && endOf(looseWord, text, wordEnd) === -1) return { kind: "word", start, end: wordEnd }
    const found = text.slice(start, endOf(looseWord, text, start))
    throw new Malformed(`${found.slice(0, 30)} is not a JSON value`, start)
  }
}

/** The end of the string that starts at an offset. A regular expression would need stack for each character. */
const endOfString = (text: string, start: number): number => {
  for (let at = start + 1; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === 0x22) return at + 1
    if (code < 0x20) throw new Malformed("A string must not contain a line break; write \\n", at)
    if (code !== 0x5c) continue
    const end = endOf(escape, text, at)
    if (end === -1) throw new Malformed(`\\${text[at + 1] ?? ""} is not a JSON escape`, at)
    at = end - 1
  }
  throw new Malformed("The string is not closed", start)
}

/** Callbacks for the parts of a text. */
interface Sink {
  readonly open: (kind: "{" | "[", isEmpty: boolean) => void
  readonly close: (kind: "}" | "]") => void
  readonly name: (text: string) => void
  readonly scalar: (text: string) => void
  readonly comma: () => void
}

const nothing = (): void => {}
const ignore: Sink = { open: nothing, close: nothing, name: nothing, scalar: nothing, comma: nothing }

const unexpected = (tokens: Tokens, expected: string): Malformed => {
  const { token } = tokens
  const found = token === undefined ? "the end" : tokens.text.slice(token.start, Math.min(token.end, token.start + 30))
  return new Malformed(`${expected} is missing before ${found}`, tokens.offset)
}

const readValue = (tokens: Tokens, sink: Sink, depth: number): void => {
  const { token, text } = tokens
  if (token === undefined) throw unexpected(tokens, "A value")
  switch (token.kind) {
    case "string":
    case "number":
    case "word":
      sink.scalar(text.slice(token.start, token.end))
      tokens.next()
      return
    case "{":
    case "[":
      if (depth === maxDepth) throw new Malformed(`More than ${maxDepth} levels of nesting`, token.start)
      tokens.next()
      return token.kind === "{" ? readMembers(tokens, sink, depth) : readElements(tokens, sink, depth)
    default:
      throw unexpected(tokens, "A value")
  }
}

const readElements = (tokens: Tokens, sink: Sink, depth: number): void => {
  const isEmpty = tokens.token?.kind === "]"
  sink.open("[", isEmpty)
  if (!isEmpty) {
    readValue(tokens, sink, depth + 1)
    while (tokens.token?.kind === ",") {
      sink.comma()
      tokens.next()
      readValue(tokens, sink, depth + 1)
    }
  }
  if (tokens.token?.kind !== "]") throw unexpected(tokens, "A comma or ]")
  tokens.next()
  sink.close("]")
}

const readMembers = (tokens: Tokens, sink: Sink, depth: number): void => {
  const names = new Set<string>()
  const isEmpty = tokens.token?.kind === "}"
  sink.open("{", isEmpty)
  while (!isEmpty) {
    const { token, text } = tokens
    if (token?.kind !== "string") throw unexpected(tokens, "A name in quotes")
    const quoted = text.slice(token.start, token.end)
    const name: string = JSON.parse(quoted)
    if (names.has(name)) throw new Malformed(`Duplicate name ${quoted.slice(0, 40)}`, token.start)
    names.add(name)
    sink.name(quoted)
    if (tokens.next()?.kind !== ":") throw unexpected(tokens, "A colon")
    tokens.next()
    readValue(tokens, sink, depth + 1)
    if (tokens.offset === text.length || text[tokens.offset] !== ",") break
    sink.comma()
    tokens.next()
  }
  if (tokens.token?.kind !== "}") throw unexpected(tokens, "A comma or }")
  tokens.next()
  sink.close("}")
}

const read = (text: string, sink: Sink): void => {
  const tokens = new Tokens(text)
  readValue(tokens, sink, 0)
  if (tokens.token !== undefined) throw new Malformed("Unexpected text after the value", tokens.offset)
}

/** The first problem of a text; `undefined` if it is one JSON value that the store accepts. */
export const problemOf = (text: string): Problem | undefined => {
  try {
    read(text, ignore)
    return undefined
  } catch (error) {
    if (!(error instanceof Malformed)) throw error
    return { message: error.message, offset: error.offset }
  }
}

/** Rewrites a JSON text token by token, with line breaks and `indent`, or without white space. */
const rewrite = (text: string, indent: string | undefined): string => {
  const parts: Array<string> = []
  const nesting: Array<boolean> = []
  const line = () => {
    if (indent !== undefined) parts.push("\n", indent.repeat(nesting.length))
  }
  read(text, {
    open: (kind, isEmpty) => {
      parts.push(kind)
      nesting.push(isEmpty)
      if (!isEmpty) line()
    },
    close: kind => {
      if (!nesting.pop()) line()
      parts.push(kind)
    },
    name: quoted => parts.push(quoted, indent === undefined ? ":" : ": "),
    scalar: scalar => parts.push(scalar),
    comma: () => {
      parts.push(",")
      line()
    }
  })
  return parts.join("")
}

/** A JSON text with one member or element per line. Names, numbers and strings keep their spelling. */
export const format = (text: string): string => rewrite(text, "  ")

/** A JSON text without white space. */
export const compact = (text: string): string => rewrite(text, undefined)

/** The end of the value that starts at an offset of a valid text. */
const skip = (text: string, start: number): number => {
  const character = text[start]
  if (character === '"') return endOfString(text, start)
  if (character !== "{" && character !== "[") return endOf(looseWord, text, start)
  let depth = 0
  for (let at = start; ; at++) {
    const code = text[at]
    if (code === '"') at = endOfString(text, at) - 1
    else if (code === "{" || code === "[") depth++
    else if ((code === "}" || code === "]") && --depth === 0) return at + 1
  }
}

const next = (text: string, at: number): number => endOf(white, text, at)

/** The values of the members of a valid object, as text. */
export const membersOf = (text: string): ReadonlyMap<string, string> => {
  const members = new Map<string, string>()
  let at = next(text, next(text, 0) + 1)
  while (text[at] === '"') {
    const end = skip(text, at)
    const name: string = JSON.parse(text.slice(at, end))
    const start = next(text, next(text, end) + 1)
    const valueEnd = skip(text, start)
    members.set(name, text.slice(start, valueEnd))
    at = next(text, next(text, valueEnd) + 1)
  }
  return members
}

/** The elements of a valid array, as text. */
export const elementsOf = (text: string): ReadonlyArray<string> => {
  const elements: Array<string> = []
  let at = next(text, next(text, 0) + 1)
  while (at < text.length && text[at] !== "]") {
    const end = skip(text, at)
    elements.push(text.slice(at, end))
    const following = next(text, end)
    if (text[following] !== ",") break
    at = next(text, following + 1)
  }
  return elements
}

/** A part of a text, and its kind, which decides its color. */
export interface Colored {
  readonly text: string
  readonly kind: "name" | "string" | "number" | "word" | "other"
}

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
