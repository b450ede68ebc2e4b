/**
 * The reader of any JSON body: one pass, which checks the grammar, the limits and the names as it goes.
 *
 * It builds no more than the shell of a body: members of the body itself, and of the objects in its list of
 * operations. Values are kept as text and everything else is passed over, so that neither brackets nor elements cost
 * memory, and what is over a limit is refused where it stands.
 */

import {
  backslash,
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
  one,
  openBrace,
  openBracket,
  plus,
  quote,
  upperE,
  zero
} from "./Codes.ts"
import { JsonProblem, JsonText, RawJson } from "./JsonText.ts"

/** What a body may hold at most. */
export interface BodyLimits {
  /** Levels of arrays and objects in a value, and in whatever else is nested. */
  readonly depth: number
  /** Elements of the `operations` of a batch. */
  readonly operations: number
  /** Characters of a value as it is kept, without white space between its tokens. */
  readonly valueChars: number
}

/** Levels of arrays and objects in which a value may stand: `{"operations": [{"value": …}]}`. */
export const shellLevels = 3

/** The one member of a body whose elements are read. */
const listName = "operations"

/** Members of the body, and of one operation. Requests know seven at most; this one says that there is no sense in more. */
const mostMembers = 16

/** The digits from which on a number can be beyond the range of a double without an exponent. */
const mostDigits = 309

/** Characters of an array or object where a request has none, up to which it is read for the sake of a better message. */
const mostMisplaced = 4096

const literals = ["true", "false", "null"]

/** What a client is told of an array in the place of a body. */
export const noArray = "the body must be an object, not an array"

/** What a client is told of nesting beyond the limit. */
export const nestedDeeper = (depth: number): string => `JSON is nested more than ${depth} levels deep`

const shorten = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most)}…` : text)

/** An array or object where a request has none. It shows its text in messages, and has no members of its own. */
export class Misplaced {
  readonly #text: string
  constructor(text: string) {
    this.#text = text
  }
  toJSON(): unknown {
    return JSON.parse(this.#text)
  }
  toString(): string {
    return shorten(this.#text, 64)
  }
}

/** The member names of one object. Most objects have few, for which a list is quicker than a set. */
class MemberNames {
  readonly #few: Array<string> = []
  #many: Set<string> | undefined

  /** Returns whether the name is new. */
  add(name: string): boolean {
    if (this.#many !== undefined) {
      const { size } = this.#many
      return this.#many.add(name).size > size
    }
    if (this.#few.includes(name)) return false
    if (this.#few.push(name) > 8) this.#many = new Set(this.#few)
    return true
  }
}

/** Reads one text. Every step throws a {@link JsonProblem}, and none recurses deeper than the limit of depth. */
class Reader {
  #at = 0
  // The value that is being read, if it is one: what of it is kept already, and where the rest of it begins.
  #keeps = false
  #mostEnd = 0
  #compact = ""
  #keptFrom = 0
  #place = ""

  constructor(
    private readonly text: string,
    private readonly limits: BodyLimits
  ) {}

  body(): unknown {
    this.#space()
    if (this.#next() === openBracket) throw new JsonProblem(noArray)
    const read = this.#next() === openBrace ? this.#object("", true) : this.#other("the body", 0)
    this.#space()
    if (this.#at < this.text.length) this.#unexpected()
    return read
  }

  #next(): number {
    return this.text.charCodeAt(this.#at)
  }

  /** Steps over this code unit. */
  #take(code: number): void {
    if (this.#next() !== code) this.#unexpected()
    this.#at++
  }

  #unexpected(): never {
    const { text } = this
    const found =
      this.#at >= text.length
        ? "it ends too early"
        : `unexpected ${JSON.stringify(String.fromCodePoint(text.codePointAt(this.#at)!))} at position ${this.#at}`
    throw new JsonProblem(`the body is not JSON: ${found}`)
  }

  #tooDeep(): never {
    throw new JsonProblem(nestedDeeper(this.limits.depth))
  }

  /** The object that a body is, or one in its list. `place` is what messages put before a member's name. */
  #object(place: string, isBody: boolean): object {
    const object: Record<string, unknown> = {}
    this.#at++
    this.#space()
    if (this.#next() === closeBrace) {
      this.#at++
      return object
    }
    for (let count = 1; ; count++) {
      if (count > mostMembers) {
        throw new JsonProblem(
          `${place === "" ? "the body" : place.slice(0, -1)} has more than ${mostMembers} members, which is the limit`
        )
      }
      const name = this.#name()
      if (Object.hasOwn(object, name)) this.#repeated(name)
      this.#space()
      this.#take(colon)
      this.#space()
      const member = this.#member(place, name, isBody)
      // A plain assignment would set the prototype by `__proto__`.
      if (name === "__proto__") Object.defineProperty(object, name, { value: member, ...ordinary })
      else object[name] = member
      this.#space()
      if (this.#next() === closeBrace) break
      this.#take(comma)
      this.#space()
    }
    this.#at++
    return object
  }

  #member(place: string, name: string, isBody: boolean): unknown {
    if (name === "value") return this.#value(place)
    if (isBody && name === listName && this.#next() === openBracket) return this.#list()
    return this.#other(place + name, isBody ? 1 : 3)
  }

  #list(): ReadonlyArray<unknown> {
    const elements: Array<unknown> = []
    const most = this.limits.operations
    this.#at++
    this.#space()
    if (this.#next() === closeBracket) {
      this.#at++
      return elements
    }
    for (;;) {
      // Here, so that a batch over its limit is refused before all of it is read.
      if (elements.length >= most) {
        throw new JsonProblem(`${listName} has more than ${most} elements; the limit is ${most}`, true)
      }
      const place = `${listName}[${elements.length}].`
      elements.push(this.#next() === openBrace ? this.#object(place, false) : this.#other(place.slice(0, -1), 2))
      this.#space()
      if (this.#next() === closeBracket) break
      this.#take(comma)
      this.#space()
    }
    this.#at++
    return elements
  }

  /** The text of a value without white space between its tokens. Its nesting counts from here. */
  #value(place: string): RawJson {
    this.#keeps = true
    this.#compact = ""
    this.#keptFrom = this.#at
    this.#place = place
    this.#skip(0)
    this.#keeps = false
    const text = this.#compact + this.text.slice(this.#keptFrom, this.#at)
    this.#compact = ""
    if (text.length > this.limits.valueChars) this.#tooLong()
    return new RawJson(JsonText(text))
  }

  #tooLong(): never {
    const most = this.limits.valueChars
    throw new JsonProblem(`${this.#place}value has more than ${most} bytes of JSON; the limit is ${most}`, true)
  }

  /** A member that is no value: what is no array and no object is read. */
  #other(place: string, depth: number): unknown {
    const from = this.#at
    this.#place = place
    this.#mostEnd = from + mostMisplaced
    const code = this.#next()
    this.#skip(depth)
    const text = this.text.slice(from, this.#at)
    return code === openBrace || code === openBracket ? new Misplaced(text) : (JSON.parse(text) as unknown)
  }

  #skip(depth: number): void {
    const code = this.#next()
    if (code === quote) this.#string()
    else if (code === openBrace) this.#members(depth)
    else if (code === openBracket) this.#elements(depth)
    else if (code === minus || isDigit(code)) this.#number()
    else this.#literal()
  }

  #elements(depth: number): void {
    if (depth >= this.limits.depth) this.#tooDeep()
    this.#at++
    this.#gap()
    if (this.#next() === closeBracket) {
      this.#at++
      return
    }
    for (;;) {
      this.#skip(depth + 1)
      this.#gap()
      if (this.#next() === closeBracket) break
      this.#take(comma)
      this.#gap()
      this.#measure()
    }
    this.#at++
  }

  #members(depth: number): void {
    if (depth >= this.limits.depth) this.#tooDeep()
    this.#at++
    this.#gap()
    if (this.#next() === closeBrace) {
      this.#at++
      return
    }
    const names = new MemberNames()
    for (;;) {
      const name = this.#name()
      if (!names.add(name)) this.#repeated(name)
      this.#gap()
      this.#take(colon)
      this.#gap()
      this.#skip(depth + 1)
      this.#gap()
      if (this.#next() === closeBrace) break
      this.#take(comma)
      this.#gap()
      this.#measure()
    }
    this.#at++
  }

  /** Refuses what is too long already, before more of it is read. */
  #measure(): void {
    if (this.#keeps) {
      if (this.#compact.length + this.#at - this.#keptFrom > this.limits.valueChars) this.#tooLong()
    } else if (this.#at > this.#mostEnd) {
      throw new JsonProblem(`${shorten(this.#place, 64)} must not be an array or object`)
    }
  }

  /** A reader would have to guess which of the two was meant (RFC 7493, 2.3). */
  #repeated(name: string): never {
    throw new JsonProblem(`the member ${JSON.stringify(shorten(name, 64))} appears twice in one object`)
  }

  #name(): string {
    const start = this.#at
    if (this.#next() !== quote) this.#unexpected()
    this.#string()
    const inner = this.text.slice(start + 1, this.#at - 1)
    return inner.includes("\\") ? (JSON.parse(this.text.slice(start, this.#at)) as string) : inner
  }

  #string(): void {
    const { text } = this
    let at = this.#at + 1
    for (; ; at++) {
      const code = text.charCodeAt(at)
      if (code === quote) break
      // Also at the end of the text, where there is no code.
      if (!(code >= 0x20)) this.#unexpectedAt(at)
      if (code !== backslash) continue
      const escape = text.charCodeAt(++at)
      if (escapable[escape] !== 1) this.#unexpectedAt(at)
      if (escape === lowerU) {
        for (const end = at + 4; at < end; ) if (!isHex(text.charCodeAt(++at))) this.#unexpectedAt(at)
      }
    }
    this.#at = at + 1
  }

  #unexpectedAt(at: number): never {
    this.#at = at
    this.#unexpected()
  }

  #digits(): void {
    if (!isDigit(this.#next())) this.#unexpected()
    while (isDigit(this.#next())) this.#at++
  }

  #number(): void {
    const start = this.#at
    if (this.#next() === minus) this.#at++
    if (this.#next() === zero) this.#at++
    else if (this.#next() >= one) this.#digits()
    else this.#unexpected()
    if (this.#next() === dot) {
      this.#at++
      this.#digits()
    }
    const isScaled = this.#next() === lowerE || this.#next() === upperE
    if (isScaled) {
      this.#at++
      if (this.#next() === plus || this.#next() === minus) this.#at++
      this.#digits()
    }
    if (!isScaled && this.#at - start < mostDigits) return
    const token = this.text.slice(start, this.#at)
    // JSON has no way to print an infinite number back.
    if (!Number.isFinite(Number(token))) {
      throw new JsonProblem(`the number ${shorten(token, 32)} is beyond the range of a double`)
    }
  }

  #literal(): void {
    for (const literal of literals) {
      if (!this.text.startsWith(literal, this.#at)) continue
      this.#at += literal.length
      return
    }
    this.#unexpected()
  }

  /** White space outside of values. */
  #space(): void {
    while (isSpace(this.#next())) this.#at++
  }

  /** White space in what is nested, which is left out of a value. */
  #gap(): void {
    if (!isSpace(this.#next())) return
    if (this.#keeps) this.#compact += this.text.slice(this.#keptFrom, this.#at)
    this.#space()
    this.#keptFrom = this.#at
  }
}

const ordinary = { enumerable: true, writable: true, configurable: true } as const

/** The body that a text is, with {@link RawJson} for each member `value`; throws a {@link JsonProblem}. */
export const read = (text: string, limits: BodyLimits): unknown => new Reader(text, limits).body()
