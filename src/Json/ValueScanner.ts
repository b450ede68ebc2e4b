import {
  backslash,
  type Codes,
  closeBrace,
  closeBracket,
  colon,
  comma,
  dot,
  escapable,
  isDigit,
  isHex,
  isSpace,
  lowerE,
  lowerU,
  minus,
  nine,
  one,
  openBrace,
  openBracket,
  plus,
  quote,
  spell,
  upperE,
  zero
} from "./Codes.ts"
import { JsonText } from "./JsonText.ts"

/** What comes of a step that gives up. */
export const gaveUp = -1

/** Members of one object, and of all that it stands in: more are left to others. */
const mostMembers = 64
const mostNames = 512

/** Digits that always stay within the range of a double. */
const safeDigits = 300

/** The code units of no text. */
const none = new Uint8Array(0)

const literals = ["true", "false", "null"].map(spell)

/**
 * Walks over values, of which nothing is made but their text. Steps take and return places in the text, or
 * {@link gaveUp}.
 */
export class ValueScanner {
  protected text = ""
  protected codes: Codes = none
  protected maxDepth = 0
  // Of the names of all objects that the value is in the midst of, to find those that are repeated.
  private readonly hashes = new Int32Array(mostNames)
  private names = 0
  private compact = ""
  private keptFrom = 0
  private maxValue = 0
  // A value that goes on beyond this place may be too long, which others find out.
  private mostEnd = 0

  /** Begins another text. */
  protected begin(text: string, codes: Codes, maxDepth: number, maxValue: number): void {
    this.maxValue = maxValue
    this.text = text
    this.codes = codes
    this.maxDepth = maxDepth
    this.names = 0
  }

  /** Lets go of the text. */
  protected end(): void {
    this.text = ""
    this.codes = none
    this.compact = ""
  }

  /** The end of the white space here. */
  protected space(at: number): number {
    const { codes } = this
    let next = at
    while (isSpace(codes[next])) next++
    return next
  }

  /** Whether this stands here. */
  protected spelled(at: number, spelling: Uint8Array): boolean {
    const { codes } = this
    for (let index = 0; index < spelling.length; index++) if (codes[at + index] !== spelling[index]) return false
    return true
  }

  /** The end of a value, whose text {@link taken} gives. */
  protected value(at: number): number {
    this.compact = ""
    this.keptFrom = at
    this.mostEnd = at + this.maxValue
    return this.skip(at, 0)
  }

  /** The text of the value that ended here, without white space between its tokens. */
  protected taken(end: number): JsonText {
    const rest = this.text.slice(this.keptFrom, end)
    return JsonText(this.compact === "" ? rest : this.compact + rest)
  }

  /** White space within a value, which is left out. */
  private skipSpace(at: number): number {
    if (!isSpace(this.codes[at])) return at
    this.compact += this.text.slice(this.keptFrom, at)
    this.keptFrom = this.space(at)
    return this.keptFrom
  }

  private skip(at: number, depth: number): number {
    const { codes } = this
    const code = codes[at]
    if (code === quote) return this.skipString(at)
    if (code === openBrace) return depth < this.maxDepth ? this.skipObject(at, depth) : gaveUp
    if (code === openBracket) return depth < this.maxDepth ? this.skipArray(at, depth) : gaveUp
    if (code === minus || isDigit(code)) return this.number(at)
    for (let index = 0; index < literals.length; index++) {
      const literal = literals[index]!
      if (code === literal[0]) return this.spelled(at, literal) ? at + literal.length : gaveUp
    }
    return gaveUp
  }

  private skipArray(from: number, depth: number): number {
    const { codes } = this
    let at = this.skipSpace(from + 1)
    if (codes[at] === closeBracket) return at + 1
    for (;;) {
      at = this.skip(at, depth + 1)
      if (at === gaveUp) return gaveUp
      at = this.skipSpace(at)
      if (codes[at] === closeBracket) return at + 1
      if (codes[at] !== comma || at > this.mostEnd) return gaveUp
      at = this.skipSpace(at + 1)
    }
  }

  private skipObject(from: number, depth: number): number {
    const { codes } = this
    const first = this.names
    let at = this.skipSpace(from + 1)
    if (codes[at] === closeBrace) return at + 1
    for (;;) {
      at = this.skipName(at, first)
      if (at === gaveUp) return gaveUp
      at = this.skipSpace(at)
      if (codes[at] !== colon) return gaveUp
      at = this.skip(this.skipSpace(at + 1), depth + 1)
      if (at === gaveUp) return gaveUp
      at = this.skipSpace(at)
      if (codes[at] === closeBrace) {
        this.names = first
        return at + 1
      }
      if (codes[at] !== comma || at > this.mostEnd) return gaveUp
      at = this.skipSpace(at + 1)
    }
  }

  /** A name without escapes that is none of those of the same object, which begin with `first`. */
  private skipName(at: number, first: number): number {
    const { codes, hashes, names } = this
    if (codes[at] !== quote || names - first >= mostMembers || names >= mostNames) return gaveUp
    let hash = 0
    let end = at + 1
    for (; ; end++) {
      const code = codes[end]
      if (code === quote) break
      if (code === undefined || code < 0x20 || code === backslash) return gaveUp
      hash = (Math.imul(hash, 31) + code) | 0
    }
    // Two names of one hash may differ, but seldom do.
    for (let index = first; index < names; index++) if (hashes[index] === hash) return gaveUp
    hashes[names] = hash
    this.names = names + 1
    return end + 1
  }

  private skipString(at: number): number {
    const { codes } = this
    for (let index = at + 1; ; index++) {
      const code = codes[index]
      if (code === quote) return index + 1
      if (code === undefined || code < 0x20) return gaveUp
      if (code !== backslash) continue
      const escape = codes[++index]
      if (escape === undefined || escapable[escape] !== 1) return gaveUp
      if (escape === lowerU) {
        for (const end = index + 4; index < end; ) if (!isHex(codes[++index])) return gaveUp
      }
    }
  }

  /** The end of a number that a double can hold. */
  protected number(from: number): number {
    const { codes } = this
    let at = codes[from] === minus ? from + 1 : from
    const lead = codes[at]
    if (lead === undefined || lead < zero || lead > nine) return gaveUp
    at++
    if (lead >= one) while (isDigit(codes[at])) at++
    if (codes[at] === dot) {
      at++
      if (!isDigit(codes[at])) return gaveUp
      while (isDigit(codes[at])) at++
    }
    const isScaled = codes[at] === lowerE || codes[at] === upperE
    if (isScaled) {
      at++
      if (codes[at] === plus || codes[at] === minus) at++
      if (!isDigit(codes[at])) return gaveUp
      while (isDigit(codes[at])) at++
    }
    if (!isScaled && at - from < safeDigits) return at
    return Number.isFinite(Number(this.text.slice(from, at))) ? at : gaveUp
  }
}
