/**
 * A quick reader of the bodies that clients commonly send: a value to set, or a batch, with the members that are known
 * and names without escapes. It makes nothing of values, which are kept as text, and leaves all else to
 * `JsonReader`.
 *
 * So it has to be right where it gives an answer, and nowhere does it have to give one: whatever is malformed, refused
 * or merely uncommon, it gives up, and whoever tells the client why reads it again.
 */

import {
  backslash,
  type Codes,
  closeBrace,
  closeBracket,
  colon,
  comma,
  openBrace,
  openBracket,
  quote
} from "./Codes.ts"
import { RawJson } from "./JsonText.ts"
import { inBody, inOperation, type Member, made } from "./Members.ts"
import { gaveUp, ValueScanner } from "./ValueScanner.ts"

export { type Codes, codesOf } from "./Codes.ts"

/** Reads one body; what a step has read is in `read`. */
class PlainBody extends ValueScanner {
  private maxOperations = 0
  private read: unknown
  // What stood last at each member that is a text, and where: namespaces are mostly those of the operation before.
  private lastTexts: Array<string> = []
  private lastStarts: Array<number> = []

  body(text: string, codes: Codes, maxDepth: number, maxOperations: number, maxValue: number): unknown {
    this.begin(text, codes, maxDepth, maxValue)
    this.maxOperations = maxOperations
    try {
      const end = this.object(this.space(0), inBody)
      return end !== gaveUp && this.space(end) === codes.length ? this.read : undefined
    } finally {
      this.end()
      this.read = undefined
      this.lastTexts = []
      this.lastStarts = []
    }
  }

  /** An object of known members, each at most once. */
  private object(from: number, known: ReadonlyArray<Member>): number {
    const { codes } = this
    if (codes[from] !== openBrace) return gaveUp
    let seen = 0
    let count = 0
    const found: Array<unknown> = []
    let at = this.space(from + 1)
    if (codes[at] === closeBrace) return gaveUp
    for (;;) {
      // Clients write members in the order in which they are known.
      const member = this.member(at, known, count++)
      if (member === undefined || (seen & member.bit) !== 0) return gaveUp
      seen |= member.bit
      at = this.space(at + member.spelling.length)
      if (codes[at] !== colon) return gaveUp
      at = this.content(this.space(at + 1), member)
      if (at === gaveUp) return gaveUp
      found[member.index] = this.read
      at = this.space(at)
      if (codes[at] === closeBrace) {
        this.read = made(known, seen, found)
        return at + 1
      }
      if (codes[at] !== comma) return gaveUp
      at = this.space(at + 1)
    }
  }

  private member(at: number, known: ReadonlyArray<Member>, likely: number): Member | undefined {
    const first = known[likely]
    if (first !== undefined && this.spelled(at, first.spelling)) return first
    for (let index = 0; index < known.length; index++) {
      const member = known[index]!
      if (this.codes[at + 1] === member.spelling[1] && this.spelled(at, member.spelling)) return member
    }
    return undefined
  }

  private content(at: number, { index, kind }: Member): number {
    switch (kind) {
      case "text":
        return this.plainText(at, index)
      case "value": {
        const end = this.value(at)
        if (end !== gaveUp) this.read = new RawJson(this.taken(end))
        return end
      }
      case "number": {
        const end = this.number(at)
        if (end !== gaveUp) this.read = Number(this.text.slice(at, end))
        return end
      }
      case "operations":
        return this.operations(at)
    }
  }

  private operations(from: number): number {
    const { codes } = this
    if (codes[from] !== openBracket) return gaveUp
    const operations: Array<unknown> = []
    let at = this.space(from + 1)
    if (codes[at] !== closeBracket) {
      for (;;) {
        at = this.object(at, inOperation)
        if (at === gaveUp || operations.push(this.read) > this.maxOperations) return gaveUp
        at = this.space(at)
        if (codes[at] === closeBracket) break
        if (codes[at] !== comma) return gaveUp
        at = this.space(at + 1)
      }
    }
    this.read = operations
    return at + 1
  }

  /** A string without escapes. One that says what stood last at this member is that very string. */
  private plainText(at: number, member: number): number {
    const { codes } = this
    if (codes[at] !== quote) return gaveUp
    const start = at + 1
    let end = start
    for (; ; end++) {
      const code = codes[end]
      if (code === quote) break
      if (code === undefined || code < 0x20 || code === backslash) return gaveUp
    }
    const last = this.lastTexts[member]
    if (last !== undefined && end - start === last.length && this.isSame(this.lastStarts[member]!, start, end)) {
      this.read = last
    } else {
      const text = this.text.slice(start, end)
      this.lastTexts[member] = text
      this.lastStarts[member] = start
      this.read = text
    }
    return end + 1
  }

  private isSame(before: number, start: number, end: number): boolean {
    const { codes } = this
    for (let index = start; index < end; index++) if (codes[before + index - start] !== codes[index]) return false
    return true
  }
}

// One for all: a body is read to its end before another is begun, and what it needs room for stays where it is.
const reader = new PlainBody()

/**
 * The body that a text is, with {@link RawJson} for each member `value`, or `undefined` where that has to be found out
 * in another way. It recurses no deeper than `maxDepth`.
 */
export const read = (
  text: string,
  codes: Codes,
  maxDepth: number,
  maxOperations: number,
  maxValue = Number.POSITIVE_INFINITY
): unknown => reader.body(text, codes, maxDepth, maxOperations, maxValue)
