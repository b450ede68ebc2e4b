/** Checks JSON text within limits, without building values; and the characters of its grammar. */
import { JsonProblem, JsonText } from "./JsonText.ts"

/** Code units, which are also the bytes in UTF-8. */
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

/**
 * Maximum number of names that are distinguished by their hashes: in one object, and in it and all objects around it.
 */
const hashedInObject = 64
const hashedInAll = 512

/** A number of fewer characters that has no exponent is within the range of a double. */
const safeNumber = 309

/** UTF-8 that can be decoded in part, as a `Buffer` can. */
export interface Utf8 extends Uint8Array {
  toString(encoding?: "utf8", start?: number, end?: number): string
}

/** A `Buffer` where there are any, so that V8 optimizes the scanner of the service for one class of bytes. */
const none = (globalThis as { Buffer?: { alloc(size: number): Utf8 } }).Buffer?.alloc(0) ?? new Uint8Array(0)

const literals = ["true", "false", "null"].map(spell)

export const shorten = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most)}…` : text)

/** What may follow an element or a member. */
export const commaOrEnd = "a comma or a closing bracket"

/**
 * Checks the grammar, the depth and the member names of JSON in UTF-8 (I-JSON, RFC 7493), and builds nothing.
 *
 * A method takes the position at which a token begins and returns the position after it, or throws a {@link
 * JsonProblem}.
 */
export abstract class Scanner {
  protected bytes: Utf8 = none
  protected maxDepth = 0
  // The text if it is ASCII, so that its positions equal those of the bytes. Its slices cost less.
  private ascii: string | undefined
  // The hash and the start of each name of the objects around the current position.
  private readonly hashes = new Int32Array(hashedInAll)
  private readonly starts = new Int32Array(hashedInAll)
  private names = 0
  private hash = 0
  // The text of the value that is kept, up to the last white space between tokens, and the start of the rest.
  protected isKept = false
  private compact = ""
  private keptFrom = 0
  // The position at which the value reaches its limit, without further white space.
  private maxEnd = 0

  /** Refuses an array or object that is longer than its limit. */
  protected abstract tooLong(): never

  protected begin(bytes: Utf8, text: string, maxDepth: number): void {
    this.bytes = bytes
    this.maxDepth = maxDepth
    this.ascii = text.length === bytes.length ? text : undefined
    this.names = 0
  }

  /** Releases the bytes. */
  protected end(): void {
    this.bytes = none
    this.ascii = undefined
    this.compact = ""
  }

  protected textOf(start: number, end: number): string {
    return this.ascii === undefined ? this.bytes.toString("utf8", start, end) : this.ascii.slice(start, end)
  }

  /** Refuses what is at this position with a message. */
  private refuse(at: number, message: string, expected?: string): never {
    throw new JsonProblem(message, false, this.textOf(0, at).length, expected)
  }

  protected unexpected(at: number, expected: string): never {
    const found =
      at >= this.bytes.length
        ? "it ends too early"
        : `unexpected ${JSON.stringify(String.fromCodePoint(this.textOf(at, at + 4).codePointAt(0)!))} at position ${this.textOf(0, at).length}`
    this.refuse(at, `the body is not JSON: ${found}`, expected)
  }

  /** Refuses a repeated name: it would be undefined which of the two applies (RFC 7493, 2.3). */
  protected repeated(name: string, at: number): never {
    this.refuse(at, `the member ${JSON.stringify(shorten(name, 64))} appears twice in one object`)
  }

  protected space(at: number): number {
    const { bytes } = this
    let next = at
    while (isSpace(bytes[next])) next++
    return next
  }

  protected spelled(at: number, spelling: Uint8Array): boolean {
    const { bytes } = this
    for (let index = 0; index < spelling.length; index++) if (bytes[at + index] !== spelling[index]) return false
    return true
  }

  /** The position of the value after this colon. */
  protected colon(at: number): number {
    if (this.bytes[at] !== colon) this.unexpected(at, "a colon")
    return this.space(at + 1)
  }

  /**
   * Keeps the text of a value, which {@link kept} returns. Its depth counts from here. One with a comma after
   * `maxBytes` is too long; one that ends there is not.
   */
  protected keep(at: number, maxBytes: number): number {
    this.isKept = true
    this.compact = ""
    this.keptFrom = at
    this.maxEnd = at + maxBytes
    return this.skipValue(at, 0)
  }

  /** The text of the value that ended here, without white space between its tokens. */
  protected kept(end: number): JsonText {
    const rest = this.textOf(this.keptFrom, end)
    return JsonText(this.compact === "" ? rest : this.compact + rest)
  }

  /** Skips a value. One with a comma after `maxEnd` is too long. */
  protected skip(at: number, depth: number, maxEnd: number): number {
    this.isKept = false
    this.maxEnd = maxEnd
    return this.skipValue(at, depth)
  }

  private skipValue(at: number, depth: number): number {
    const code = this.bytes[at]
    if (code === quote) return this.string(at)
    if (code === openBrace) return this.skipObject(at, depth)
    if (code === openBracket) return this.skipArray(at, depth)
    if (code === minus || isDigit(code)) return this.number(at)
    for (let index = 0; index < literals.length; index++) {
      const literal = literals[index]!
      if (this.spelled(at, literal)) return at + literal.length
    }
    this.unexpected(at, "a value")
  }

  private tooDeep(at: number): never {
    this.refuse(at, `JSON is nested more than ${this.maxDepth} levels deep`)
  }

  private skipArray(from: number, depth: number): number {
    if (depth >= this.maxDepth) this.tooDeep(from)
    const { bytes } = this
    let at = this.skipGap(from + 1)
    if (bytes[at] === closeBracket) return at + 1
    for (;;) {
      at = this.skipGap(this.skipValue(at, depth + 1))
      if (bytes[at] === closeBracket) return at + 1
      at = this.skipComma(at)
    }
  }

  private skipObject(from: number, depth: number): number {
    if (depth >= this.maxDepth) this.tooDeep(from)
    const { bytes } = this
    const first = this.names
    let set: Set<string> | undefined
    let at = this.skipGap(from + 1)
    if (bytes[at] === closeBrace) return at + 1
    for (;;) {
      const start = at
      at = this.skipName(at)
      if (set !== undefined || !this.isNew(first, start)) {
        set ??= this.namesFrom(first)
        const name = this.nameOf(start, at)
        if (set.size === set.add(name).size) this.repeated(name, start)
      }
      at = this.skipGap(at)
      if (bytes[at] !== colon) this.unexpected(at, "a colon")
      at = this.skipGap(this.skipValue(this.skipGap(at + 1), depth + 1))
      if (bytes[at] === closeBrace) {
        this.names = first
        return at + 1
      }
      at = this.skipComma(at)
    }
  }

  private skipComma(at: number): number {
    if (this.bytes[at] !== comma) this.unexpected(at, commaOrEnd)
    const next = this.skipGap(at + 1)
    // Checked before the rest of the value is read.
    if (next > this.maxEnd) this.tooLong()
    return next
  }

  /** White space in a value, which is not kept. */
  private skipGap(at: number): number {
    if (!isSpace(this.bytes[at])) return at
    const end = this.space(at)
    if (this.isKept) {
      this.compact += this.textOf(this.keptFrom, at)
      this.keptFrom = end
      this.maxEnd += end - at
    }
    return end
  }

  /** A member's name. Its hash is 0 if it has escapes. */
  private skipName(at: number): number {
    const { bytes } = this
    if (bytes[at] !== quote) this.unexpected(at, "a name in quotes")
    let hash = 1
    for (let end = at + 1; ; end++) {
      const code = bytes[end]
      if (code === quote) {
        this.hash = hash
        return end + 1
      }
      if (code === backslash || code === undefined || code < 0x20) {
        this.hash = 0
        return this.string(at)
      }
      hash = (Math.imul(hash, 31) + code) | 0
    }
  }

  /** Stores the name that starts here, if its hash shows that it differs from all names from `first` on. */
  private isNew(first: number, start: number): boolean {
    const hash = this.hash
    const hashes = this.hashes
    const names = this.names
    if (hash === 0 || names === hashedInAll || names - first === hashedInObject) return false
    for (let index = first; index < names; index++) if (hashes[index] === hash) return false
    hashes[names] = hash
    this.starts[names] = start
    this.names = names + 1
    return true
  }

  private namesFrom(first: number): Set<string> {
    const set = new Set<string>()
    for (let index = first; index < this.names; index++) {
      const start = this.starts[index]!
      set.add(this.nameOf(start, this.string(start)))
    }
    return set
  }

  protected nameOf(start: number, end: number): string {
    const text = this.textOf(start + 1, end - 1)
    return text.includes("\\") ? (JSON.parse(`"${text}"`) as string) : text
  }

  protected string(from: number): number {
    const { bytes } = this
    if (bytes[from] !== quote) this.unexpected(from, "a name in quotes")
    for (let at = from + 1; ; at++) {
      const code = bytes[at]
      if (code === quote) return at + 1
      if (code === undefined || code < 0x20) this.unexpected(at, "a closing quote or an escape such as \\n")
      if (code !== backslash) continue
      const escape = bytes[++at]
      if (escape === undefined || escapable[escape] !== 1) this.unexpected(at, "an escape")
      if (escape === lowerU) {
        for (const end = at + 4; at < end; ) if (!isHex(bytes[++at])) this.unexpected(at, "a hexadecimal digit")
      }
    }
  }

  /** A number within the range of a double. */
  protected number(from: number): number {
    const { bytes } = this
    let at = bytes[from] === minus ? from + 1 : from
    if (bytes[at] === zero) at++
    else at = this.digits(at)
    if (bytes[at] === dot) at = this.digits(at + 1)
    const isScaled = bytes[at] === lowerE || bytes[at] === upperE
    if (isScaled) {
      at++
      at = this.digits(bytes[at] === plus || bytes[at] === minus ? at + 1 : at)
    }
    if (!isScaled && at - from < safeNumber) return at
    const text = this.textOf(from, at)
    // JSON could not print an infinite number.
    if (Number.isFinite(Number(text))) return at
    this.refuse(from, `the number ${shorten(text, 32)} is beyond the range of a double`)
  }

  private digits(from: number): number {
    const { bytes } = this
    if (!isDigit(bytes[from])) this.unexpected(from, "a digit")
    let at = from + 1
    while (isDigit(bytes[at])) at++
    return at
  }
}
