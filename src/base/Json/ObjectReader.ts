/** Reads JSON objects of known shapes within limits, and keeps values as text. */

import { JsonProblem, RawJson } from "./JsonText.ts"
import {
  backslash,
  closeBrace,
  closeBracket,
  comma,
  commaOrEnd,
  isDigit,
  minus,
  openBrace,
  openBracket,
  quote,
  Scanner,
  shorten,
  spell,
  type Utf8
} from "./Scanner.ts"

/** The kind of a member: a value whose text is kept, a scalar, or a list of objects with a shape. */
type Kind = "json" | "scalar" | ObjectShape

interface Member {
  readonly name: string
  readonly kind: Kind
  readonly index: number
  readonly bit: number
  readonly spelling: Uint8Array
}

export interface ObjectShape {
  readonly members: ReadonlyArray<Member>
  /** The bits of the members that `make` takes. */
  readonly plain: number
  readonly make: (values: ReadonlyArray<never>) => object
}

/**
 * A shape of members, in the order in which clients commonly write them. `make` builds an object that has the first
 * `plain` members and no others, which is faster than setting members by their names.
 */
export const shape = (
  kinds: Readonly<Record<string, Kind>>,
  plain = 0,
  make: ObjectShape["make"] = () => ({})
): ObjectShape => ({
  members: Object.entries(kinds).map(([name, kind], index) => ({
    name,
    kind,
    index,
    bit: 1 << index,
    spelling: spell(`"${name}"`)
  })),
  plain: (1 << plain) - 1,
  make
})

export interface ReadLimits {
  /** Levels of arrays and objects in a value that is kept. */
  readonly depth: number
  /** Elements of a list of objects. */
  readonly elements: number
  /** Bytes of an array or object that is kept. A longer one is refused before it is read to its end. */
  readonly valueBytes: number
}

/** Members of an object that has a shape. */
const maxMembers = 16

/** An array or object instead of a scalar is read up to this number of bytes, for a better message. */
const maxMisplaced = 4096

/** An array or object instead of a scalar. Messages show its text; it has no own members. */
export class Misplaced {
  readonly #text: string
  constructor(text: string) {
    this.#text = text
  }
  get text(): string {
    return this.#text
  }
  toJSON(): unknown {
    return JSON.parse(this.#text)
  }
  toString(): string {
    return shorten(this.#text, 64)
  }
}

const made = ({ make, members, plain }: ObjectShape, seen: number, values: ReadonlyArray<unknown>): object => {
  if (seen === plain) return make(values as ReadonlyArray<never>)
  const object: Record<string, unknown> = {}
  for (const { bit, index, name } of members) if ((seen & bit) !== 0) object[name] = values[index]
  return object
}

/** Reads one text after the other. The value that a step has read is in `result`. */
class ObjectReader extends Scanner {
  private limits: ReadLimits = { depth: 0, elements: 0, valueBytes: 0 }
  private result: unknown
  // The position of the reader, for messages: the list, the index of the element, and the member.
  private list = ""
  private index = 0
  private member = ""
  // The last string of each member, and its start: the next object often has the same one.
  private lastStrings: Array<string> = []
  private lastStarts: Array<number> = []

  read(bytes: Utf8, text: string, kind: ObjectShape | "json", limits: ReadLimits): unknown {
    this.limits = limits
    this.begin(bytes, text, limits.depth)
    try {
      const end = this.space(this.readWhole(this.space(0), kind))
      if (end < bytes.length) this.unexpected(end, "the end of the text")
      return this.result
    } finally {
      this.end()
      this.result = undefined
      this.list = ""
      this.member = ""
      this.lastStrings = []
      this.lastStarts = []
    }
  }

  private readWhole(from: number, kind: ObjectShape | "json"): number {
    if (kind === "json") return this.readText(from)
    const code = this.bytes[from]
    if (code === openBracket) throw new JsonProblem("the body must be an object, not an array")
    return code === openBrace ? this.readObject(from, kind, 1) : this.readScalar(from, 0, 0)
  }

  private place(): string {
    const element = this.list === "" ? "" : `${this.list}[${this.index}]`
    if (element === "") return this.member === "" ? "the body" : this.member
    return this.member === "" ? element : `${element}.${this.member}`
  }

  protected tooLong(): never {
    if (!this.isKept) throw new JsonProblem(`${shorten(this.place(), 64)} must not be an array or object`)
    const most = this.limits.valueBytes
    throw new JsonProblem(`${this.place()} has more than ${most} bytes of JSON; the limit is ${most}`, true)
  }

  /** An object with a shape. `depth` is that of its members. */
  private readObject(from: number, shape: ObjectShape, depth: number): number {
    const { bytes } = this
    const values: Array<unknown> = []
    let seen = 0
    // Used from the first member on that is not in the shape.
    let object: object | undefined
    let at = this.space(from + 1)
    if (bytes[at] === closeBrace) {
      this.result = {}
      return at + 1
    }
    for (let count = 0; ; count++) {
      this.member = ""
      if (count === maxMembers) {
        throw new JsonProblem(`${this.place()} has more than ${maxMembers} members, which is the limit`)
      }
      const start = at
      let member = this.expectedMember(at, shape.members, count)
      if (member === undefined) {
        at = this.string(at)
        member = this.otherMember(this.nameOf(start, at), shape.members)
      } else at += member.spelling.length
      const { bit, name } = member
      if (bit === 0) object ??= made(shape, seen, values)
      if ((seen & bit) !== 0 || (object !== undefined && Object.hasOwn(object, name))) this.repeated(name, start)
      seen |= bit
      this.member = name
      at = this.readMember(this.colon(this.space(at)), member, depth)
      if (object === undefined) values[member.index] = this.result
      // A plain assignment to `__proto__` would set the prototype.
      else Object.defineProperty(object, name, { value: this.result, ...ordinary })
      at = this.space(at)
      if (bytes[at] === closeBrace) {
        this.result = object ?? made(shape, seen, values)
        return at + 1
      }
      if (bytes[at] !== comma) this.unexpected(at, commaOrEnd)
      at = this.space(at + 1)
    }
  }

  /** The member of a shape whose name is at this position without escapes. */
  private expectedMember(at: number, members: ReadonlyArray<Member>, likely: number): Member | undefined {
    const first = members[likely]
    if (first !== undefined && this.spelled(at, first.spelling)) return first
    for (let index = 0; index < members.length; index++) {
      const member = members[index]!
      if (this.bytes[at + 1] === member.spelling[1] && this.spelled(at, member.spelling)) return member
    }
    return undefined
  }

  private otherMember(name: string, members: ReadonlyArray<Member>): Member {
    const spelledWithEscapes = members.find(member => member.name === name)
    return spelledWithEscapes ?? { name, kind: "scalar", index: members.length, bit: 0, spelling: spell("") }
  }

  private readMember(at: number, { index, kind }: Member, depth: number): number {
    if (kind === "json") return this.readText(at)
    return kind !== "scalar" && this.bytes[at] === openBracket
      ? this.readList(at, kind, depth + 1)
      : this.readScalar(at, index, depth)
  }

  /** A value whose text is kept. */
  private readText(at: number): number {
    const end = this.keep(at, this.limits.valueBytes)
    this.result = new RawJson(this.kept(end))
    return end
  }

  private readList(from: number, shape: ObjectShape, depth: number): number {
    const { bytes } = this
    const { elements: most } = this.limits
    const elements: Array<unknown> = []
    const { index, list } = this
    const name = this.place()
    let at = this.space(from + 1)
    if (bytes[at] !== closeBracket) {
      this.list = name
      for (;;) {
        // Checked before the rest of the list is read.
        if (elements.length >= most) {
          throw new JsonProblem(`${name} has more than ${most} elements; the limit is ${most}`, true)
        }
        this.index = elements.length
        this.member = ""
        at = bytes[at] === openBrace ? this.readObject(at, shape, depth + 1) : this.readScalar(at, 0, depth)
        elements.push(this.result)
        at = this.space(at)
        if (bytes[at] === closeBracket) break
        if (bytes[at] !== comma) this.unexpected(at, commaOrEnd)
        at = this.space(at + 1)
      }
      this.list = list
      this.index = index
    }
    this.result = elements
    return at + 1
  }

  private readScalar(at: number, index: number, depth: number): number {
    const code = this.bytes[at]
    if (code === quote) return this.readString(at, index)
    const end = this.skip(at, depth, at + maxMisplaced)
    const text = this.textOf(at, end)
    if (code === minus || isDigit(code)) this.result = Number(text)
    else this.result = code === openBrace || code === openBracket ? new Misplaced(text) : (JSON.parse(text) as unknown)
    return end
  }

  /** A string. If it has the same bytes as the last one of this member, that one is reused. */
  private readString(at: number, index: number): number {
    const { bytes } = this
    const start = at + 1
    let end = start
    for (; bytes[end] !== quote; end++) {
      const code = bytes[end]
      if (code === undefined || code < 0x20 || code === backslash) {
        end = this.string(at)
        this.result = JSON.parse(this.textOf(at, end)) as string
        return end
      }
    }
    const last = this.lastStarts[index]
    if (last === undefined || bytes[last + end - start] !== quote || !this.isSame(last, start, end)) {
      this.lastStrings[index] = this.textOf(start, end)
      this.lastStarts[index] = start
    }
    this.result = this.lastStrings[index]
    return end + 1
  }

  private isSame(before: number, start: number, end: number): boolean {
    const { bytes } = this
    for (let at = start; at < end; at++) if (bytes[before + at - start] !== bytes[at]) return false
    return true
  }
}

const ordinary = { enumerable: true, writable: true, configurable: true } as const

// A body is read to its end before the next one, so all share one reader.
const reader = new ObjectReader()

/**
 * Reads an object from UTF-8 and the text that it encodes, with {@link RawJson} for each `json` member; or any value as
 * {@link RawJson}. A value that is not an object is returned parsed, and an array or object instead of a scalar as {@link
 * Misplaced}.
 *
 * Throws a {@link JsonProblem} at invalid JSON, more than the limits allow, repeated names, and numbers outside a double.
 */
export const read = (bytes: Utf8, text: string, kind: ObjectShape | "json", limits: ReadLimits): unknown =>
  reader.read(bytes, text, kind, limits)
