import { JsonProblem, JsonText, RawJson } from "./JsonText.ts"

/** Levels of arrays and objects in which a body may hold a `value`: `{"operations": [{"value": …}]}`. */
const envelopeLevels = 3

const quote = 0x22
const comma = 0x2c
const colon = 0x3a
const backslash = 0x5c
const letterU = 0x75
const openBracket = 0x5b
const closeBracket = 0x5d
const openBrace = 0x7b
const closeBrace = 0x7d

const isSpace = (code: number): boolean => code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09

const shorten = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most)}…` : text)

/** The length of the shortest number beyond the range of a double. */
const shortestInfinity = "2e308".length

const literals = new Map(["true", "false", "null"].map(literal => [literal.charCodeAt(0), literal]))
const numbers = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y
const escapes = /["\\/bfnrt]|u[0-9A-Fa-f]{4}/y

/** The member names of one object. Most objects have few, for which a list is quicker than a set. */
class MemberNames {
  private readonly few: Array<string> = []
  private many: Set<string> | undefined

  /** Returns whether the name is new. */
  add(name: string): boolean {
    if (this.many !== undefined) {
      const { size } = this.many
      return this.many.add(name).size > size
    }
    if (this.few.includes(name)) return false
    if (this.few.push(name) > 8) this.many = new Set(this.few)
    return true
  }
}

/**
 * Reads a request body in one pass: members named `value` are checked and kept as text, and nothing is made of what
 * they hold. It recurses no deeper than `maxDepth`.
 *
 * It throws on all that RFC 8259 does not allow, without saying much of it, and a {@link JsonProblem} on what is
 * allowed and yet refused.
 */
export class BodyScanner {
  private at = 0
  private compact = ""
  private keptFrom = 0

  constructor(
    private readonly text: string,
    private readonly maxDepth: number,
    private readonly maxOperations: number
  ) {}

  /** The body, with {@link RawJson} for each member named `value`. */
  body(): unknown {
    const body = this.envelope(0, "")
    this.skipSpace()
    return this.at === this.text.length ? body : this.fail()
  }

  private envelope(depth: number, name: string): unknown {
    this.skipSpace()
    const code = this.text.charCodeAt(this.at)
    if (depth < envelopeLevels && code === openBrace) return this.envelopeObject(depth)
    if (depth < envelopeLevels && code === openBracket) return this.envelopeArray(depth, name)
    const start = this.at
    this.skipValue(depth)
    const token = this.text.slice(start, this.at)
    return code === quote && !token.includes("\\") ? token.slice(1, -1) : JSON.parse(token)
  }

  private envelopeObject(depth: number): unknown {
    const object: Record<string, unknown> = {}
    this.members(name => {
      const member = name === "value" ? new RawJson(this.takeValue()) : this.envelope(depth + 1, name)
      if (name !== "__proto__") object[name] = member
      else Object.defineProperty(object, name, { value: member, enumerable: true, writable: true, configurable: true })
    })
    return object
  }

  private envelopeArray(depth: number, name: string): unknown {
    const array: Array<unknown> = []
    // Of a batch over its limit the rest is only counted.
    const most = depth === 1 && name === "operations" ? this.maxOperations : Number.POSITIVE_INFINITY
    const count = this.elements(closeBracket, index => {
      const element = this.envelope(depth + 1, "")
      if (index < most) array.push(element)
    })
    if (count > most) throw new JsonProblem(`${name} has ${count} elements; the limit is ${most}`, true)
    return array
  }

  /** The text of the next value without white space between its tokens. Its nesting counts from here. */
  private takeValue(): JsonText {
    this.skipSpace()
    this.compact = ""
    this.keptFrom = this.at
    this.skipValue(0)
    return JsonText(this.compact + this.text.slice(this.keptFrom, this.at))
  }

  private skipValue(depth: number): void {
    this.skipSpace()
    const code = this.text.charCodeAt(this.at)
    if ((code === openBrace || code === openBracket) && depth >= this.maxDepth) {
      throw new JsonProblem(`JSON is nested more than ${this.maxDepth} levels deep`)
    }
    if (code === openBrace) this.members(() => this.skipValue(depth + 1))
    else if (code === openBracket) this.elements(closeBracket, () => this.skipValue(depth + 1))
    else if (code === quote) this.skipString()
    else this.skipScalar()
  }

  private members(visit: (name: string) => void): void {
    const names = new MemberNames()
    this.elements(closeBrace, () => {
      this.skipSpace()
      const name = this.memberName()
      // A reader would have to guess which of the two was meant (RFC 7493, 2.3).
      if (!names.add(name)) {
        throw new JsonProblem(`the member ${JSON.stringify(shorten(name, 64))} appears twice in one object`)
      }
      this.skipSpace()
      if (this.text.charCodeAt(this.at++) !== colon) this.fail()
      visit(name)
    })
  }

  /** Visits what stands between this bracket or brace and its partner, separated by commas. Returns how many. */
  private elements(close: number, visit: (index: number) => void): number {
    this.at++
    this.skipSpace()
    if (this.text.charCodeAt(this.at) === close) {
      this.at++
      return 0
    }
    for (let index = 0; ; index++) {
      visit(index)
      this.skipSpace()
      const code = this.text.charCodeAt(this.at++)
      if (code === close) return index + 1
      if (code !== comma) this.fail()
    }
  }

  private memberName(): string {
    const start = this.at
    const isPlain = this.skipString()
    return isPlain ? this.text.slice(start + 1, this.at - 1) : JSON.parse(this.text.slice(start, this.at))
  }

  /** Returns whether the string is free of escapes. */
  private skipString(): boolean {
    const { text } = this
    if (text.charCodeAt(this.at) !== quote) this.fail()
    let isPlain = true
    for (let at = this.at + 1; ; at++) {
      const code = text.charCodeAt(at)
      if (code === quote) {
        this.at = at + 1
        return isPlain
      }
      if (code === backslash) {
        isPlain = false
        escapes.lastIndex = ++at
        if (!escapes.test(text)) this.fail()
        if (text.charCodeAt(at) === letterU) at += 4
      } else if (!(code >= 0x20)) this.fail()
    }
  }

  private skipScalar(): void {
    const { text } = this
    const start = this.at
    const literal = literals.get(text.charCodeAt(start))
    if (literal !== undefined) {
      if (!text.startsWith(literal, start)) this.fail()
      this.at += literal.length
      return
    }
    numbers.lastIndex = start
    if (!numbers.test(text)) this.fail()
    this.at = numbers.lastIndex
    if (this.at - start < shortestInfinity) return
    // JSON has no way to print what a double does not hold.
    const token = text.slice(start, this.at)
    if (!Number.isFinite(Number(token))) {
      throw new JsonProblem(`the number ${shorten(token, 32)} is beyond the range of a double`)
    }
  }

  private skipSpace(): void {
    if (!isSpace(this.text.charCodeAt(this.at))) return
    const start = this.at
    while (isSpace(this.text.charCodeAt(this.at))) this.at++
    this.compact += this.text.slice(this.keptFrom, start)
    this.keptFrom = this.at
  }

  private fail(): never {
    throw new SyntaxError(`unexpected text at ${this.at}`)
  }
}
