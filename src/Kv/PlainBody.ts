/**
 * A quick reader of the bodies that clients commonly send: a value to set, or a batch, with the members that are known
 * and names without escapes. It makes nothing of values, which are kept as text, and leaves all else to `JSON.parse`.
 *
 * So it has to be right where it gives an answer, and nowhere does it have to give one: whatever is malformed, refused
 * or merely uncommon, it gives up, and whoever tells the client why reads it again.
 */
import { JsonText, RawJson } from "./JsonText.ts"

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

const quote = 0x22
const comma = 0x2c
const minus = 0x2d
const plus = 0x2b
const dot = 0x2e
const zero = 0x30
const one = 0x31
const nine = 0x39
const colon = 0x3a
const upperE = 0x45
const openBracket = 0x5b
const backslash = 0x5c
const closeBracket = 0x5d
const lowerE = 0x65
const lowerU = 0x75
const openBrace = 0x7b
const closeBrace = 0x7d

/** What comes of a step that gives up. */
const gaveUp = -1

/** Members of one object, and of all that it stands in: more are left to others. */
const mostMembers = 64
const mostNames = 512

/** Digits that always stay within the range of a double. */
const safeDigits = 300

const isSpace = (code: number | undefined): boolean => code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09

const isDigit = (code: number | undefined): boolean => code !== undefined && code >= zero && code <= nine

const isHex = (code: number | undefined): boolean =>
  code !== undefined && (isDigit(code) || (code >= 0x41 && code <= 0x46) || (code >= 0x61 && code <= 0x66))

const tableOf = (text: string): Uint8Array => {
  const table = new Uint8Array(128)
  for (const character of text) table[character.charCodeAt(0)] = 1
  return table
}

/** What may follow a backslash. */
const escapable = tableOf('"\\/bfnrtu')

const spell = (word: string): Uint8Array => Uint8Array.from(word, character => character.charCodeAt(0))

/** A member of a body or of an operation; its bit tells whether it was there. */
interface Member {
  readonly name: string
  readonly kind: "value" | "text" | "number" | "operations"
  readonly index: number
  readonly bit: number
  readonly spelling: Uint8Array
}

const members = (kinds: Readonly<Record<string, Member["kind"]>>): ReadonlyArray<Member> =>
  Object.entries(kinds).map(([name, kind], index) => ({
    name,
    kind,
    index,
    bit: 1 << index,
    spelling: spell(`"${name}"`)
  }))

const inBody = members({
  value: "value",
  operations: "operations",
  actor: "text",
  ttlMs: "number",
  expiresAt: "number",
  ifVersion: "number"
})

const inOperation = members({
  op: "text",
  namespace: "text",
  key: "text",
  value: "value",
  ttlMs: "number",
  expiresAt: "number",
  ifVersion: "number"
})

const plainSet = 0b1111

/** The object of the members that were seen. */
const made = (known: ReadonlyArray<Member>, seen: number, found: ReadonlyArray<unknown>): object => {
  if (known === inOperation && seen === plainSet) {
    return { op: found[0], namespace: found[1], key: found[2], value: found[3] }
  }
  const object: Record<string, unknown> = {}
  for (const { bit, index, name } of known) if ((seen & bit) !== 0) object[name] = found[index]
  return object
}

const literals = ["true", "false", "null"].map(spell)

/** Reads one body. Steps take and return places in the text, or {@link gaveUp}. */
class PlainBody {
  // The names of the objects that a value is in the midst of, to find those that are repeated.
  private readonly hashes = new Int32Array(mostNames)
  private readonly starts = new Int32Array(mostNames)
  private names = 0
  private compact = ""
  private keptFrom = 0
  private text = ""
  private codes: Codes = new Uint8Array(0)
  private maxDepth = 0
  private maxOperations = 0
  private read: unknown
  private lastText = ""
  private lastStart = 0

  body(text: string, codes: Codes, maxDepth: number, maxOperations: number): unknown {
    this.text = text
    this.codes = codes
    this.maxDepth = maxDepth
    this.maxOperations = maxOperations
    this.names = 0
    this.lastText = ""
    try {
      const end = this.object(this.space(0), inBody)
      return end !== gaveUp && this.space(end) === codes.length ? this.read : undefined
    } finally {
      this.text = ""
      this.codes = nothing
      this.compact = ""
      this.lastText = ""
      this.read = undefined
    }
  }

  private space(at: number): number {
    const { codes } = this
    let next = at
    while (isSpace(codes[next])) next++
    return next
  }

  private spelled(at: number, spelling: Uint8Array): boolean {
    const { codes } = this
    for (let index = 0; index < spelling.length; index++) if (codes[at + index] !== spelling[index]) return false
    return true
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

  private content(at: number, { kind }: Member): number {
    switch (kind) {
      case "text":
        return this.plainText(at)
      case "value":
        return this.value(at)
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

  /** A string without escapes. One that stood before it in the same words, as namespaces do, is that very string. */
  private plainText(at: number): number {
    const { codes } = this
    if (codes[at] !== quote) return gaveUp
    let end = at + 1
    for (; ; end++) {
      const code = codes[end]
      if (code === quote) break
      if (code === undefined || code < 0x20 || code === backslash) return gaveUp
    }
    if (!this.isLast(at + 1, end)) {
      this.lastText = this.text.slice(at + 1, end)
      this.lastStart = at + 1
    }
    this.read = this.lastText
    return end + 1
  }

  private isLast(start: number, end: number): boolean {
    const { codes, lastStart, lastText } = this
    const { length } = lastText
    if (length === 0 || end - start !== length) return false
    for (let index = 0; index < length; index++) if (codes[start + index] !== codes[lastStart + index]) return false
    return true
  }

  /** A value as text without white space between its tokens. */
  private value(at: number): number {
    this.compact = ""
    this.keptFrom = at
    const end = this.skip(at, 0)
    if (end === gaveUp) return gaveUp
    const rest = this.text.slice(this.keptFrom, end)
    this.read = new RawJson(JsonText(this.compact === "" ? rest : this.compact + rest))
    return end
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
      if (codes[at] !== comma) return gaveUp
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
      if (codes[at] !== comma) return gaveUp
      at = this.skipSpace(at + 1)
    }
  }

  /** A name without escapes that is none of those of the same object, which begin with `first`. */
  private skipName(at: number, first: number): number {
    const { codes, hashes, names, starts } = this
    if (codes[at] !== quote || names - first >= mostMembers || names >= mostNames) return gaveUp
    const start = at + 1
    let hash = 0
    let end = start
    for (; ; end++) {
      const code = codes[end]
      if (code === quote) break
      if (code === undefined || code < 0x20 || code === backslash) return gaveUp
      hash = (Math.imul(hash, 31) + code) | 0
    }
    for (let index = first; index < names; index++) {
      if (hashes[index] === hash && this.isName(starts[index]!, start, end)) return gaveUp
    }
    hashes[names] = hash
    starts[names] = start
    this.names = names + 1
    return end + 1
  }

  /** Whether the name at `known` is the one from `start` to `end`. */
  private isName(known: number, start: number, end: number): boolean {
    const { codes } = this
    // To its end and the quote there, which no name holds.
    for (let index = start; index <= end; index++) if (codes[known + index - start] !== codes[index]) return false
    return true
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

  private number(from: number): number {
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

const nothing = new Uint8Array(0)

// One for all: a body is read to its end before another is begun, and what it needs room for stays where it is.
const reader = new PlainBody()

/**
 * The body that a text is, with {@link RawJson} for each member `value`, or `undefined` where that has to be found out
 * in another way. It recurses no deeper than `maxDepth`.
 */
export const read = (text: string, codes: Codes, maxDepth: number, maxOperations: number): unknown =>
  reader.body(text, codes, maxDepth, maxOperations)
