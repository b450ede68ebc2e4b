/**
 * Stored values travel as JSON text (RFC 8259, within I-JSON, RFC 7493): what a client wrote is what a
 * reader gets back, member order and odd names included, and no request parses and prints a value again.
 */
import { Either } from "effect"
import { JsonProblem, JsonText, RawJson } from "./JsonText.ts"
import * as PlainBody from "./PlainBody.ts"

export { JsonProblem, JsonText, RawJson } from "./JsonText.ts"

/** Levels of arrays and objects in which a body may hold a `value`: `{"operations": [{"value": …}]}`. */
const envelopeLevels = 3

const quote = 0x22
const comma = 0x2c
const backslash = 0x5c
const openBracket = 0x5b
const closeBracket = 0x5d
const openBrace = 0x7b
const closeBrace = 0x7d
const lowerE = 0x65
const upperE = 0x45

const isSpace = (code: number): boolean => code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09

const endsScalar = (code: number): boolean =>
  code === comma || code === closeBracket || code === closeBrace || isSpace(code) || Number.isNaN(code)

const shorten = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most)}…` : text)

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

/** The digits from which on a number can be beyond the range of a double without an exponent. */
const mostDigits = 309

/**
 * Walks text that `JSON.parse` has accepted: the grammar is known to hold, and only what `JSON.parse` lets
 * pass is checked. It recurses no deeper than `maxDepth`.
 */
class Scanner {
  private at = 0
  private compact = ""
  private keptFrom = 0

  constructor(
    private readonly text: string,
    private readonly maxDepth: number,
    private readonly maxOperations: number
  ) {}

  /** Walks the next value beside its parsed form, and puts {@link RawJson} there for members named `value`. */
  envelope(parsed: unknown, depth: number, name = ""): void {
    this.skipSpace()
    const code = this.text.charCodeAt(this.at)
    // Of a name that is repeated the last member was parsed, which need not be of the kind that stands here.
    const isSame =
      typeof parsed === "object" && parsed !== null && code === (Array.isArray(parsed) ? openBracket : openBrace)
    if (depth >= envelopeLevels || !isSame) {
      this.skipValue(depth)
    } else if (Array.isArray(parsed)) {
      // Here, so that a batch over its limit is not decoded before it is refused.
      if (depth === 1 && name === "operations" && parsed.length > this.maxOperations) {
        throw new JsonProblem(`${name} has ${parsed.length} elements; the limit is ${this.maxOperations}`, true)
      }
      this.elements(index => this.envelope(parsed[index], depth + 1))
    } else {
      const object = parsed as Record<string, unknown>
      this.members(name => {
        if (name === "value") object.value = new RawJson(this.takeValue())
        // Nor need it have this member: what it would inherit belongs to everybody.
        else this.envelope(Object.hasOwn(object, name) ? object[name] : undefined, depth + 1, name)
      })
    }
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
    else if (code === openBracket) this.elements(() => this.skipValue(depth + 1))
    else if (code === quote) this.skipString()
    else this.skipScalar()
  }

  private members(visit: (name: string) => void): void {
    const names = new MemberNames()
    this.elements(() => {
      this.skipSpace()
      const name = this.memberName()
      // A reader would have to guess which of the two was meant (RFC 7493, 2.3).
      if (!names.add(name)) {
        throw new JsonProblem(`the member ${JSON.stringify(shorten(name, 64))} appears twice in one object`)
      }
      this.skipSpace()
      this.at++
      visit(name)
    })
  }

  /** Visits what stands between this bracket or brace and its partner, separated by commas. */
  private elements(visit: (index: number) => void): void {
    this.at++
    this.skipSpace()
    const code = this.text.charCodeAt(this.at)
    if (code === closeBracket || code === closeBrace) {
      this.at++
      return
    }
    for (let index = 0; ; index++) {
      visit(index)
      this.skipSpace()
      if (this.text.charCodeAt(this.at++) !== comma) return
    }
  }

  private memberName(): string {
    const start = this.at
    this.skipString()
    const inner = this.text.slice(start + 1, this.at - 1)
    return inner.includes("\\") ? (JSON.parse(this.text.slice(start, this.at)) as string) : inner
  }

  private skipString(): void {
    let end = this.text.indexOf('"', this.at + 1)
    while (this.isEscaped(end)) end = this.text.indexOf('"', end + 1)
    this.at = end + 1
  }

  private isEscaped(at: number): boolean {
    let slashes = 0
    while (this.text.charCodeAt(at - 1 - slashes) === backslash) slashes++
    return slashes % 2 === 1
  }

  private skipScalar(): void {
    const start = this.at
    let isLarge = false
    for (let code = this.text.charCodeAt(start); !endsScalar(code); code = this.text.charCodeAt(++this.at)) {
      if (code === lowerE || code === upperE) isLarge = true
    }
    if (!isLarge && this.at - start < mostDigits) return
    const token = this.text.slice(start, this.at)
    // Only a number can have become infinite; JSON has no way to print it back.
    if (Math.abs(Number(token)) === Number.POSITIVE_INFINITY) {
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
}

/**
 * Parses a request body and keeps each member named `value` as {@link RawJson}.
 *
 * Refused beside what `JSON.parse` refuses: values nested beyond `maxDepth` levels, repeated member names,
 * numbers that a double cannot hold, and more than `maxOperations` in the `operations` of a batch. Whoever has the
 * text's code units gives them along.
 */
export const parseBody = (
  text: string,
  maxDepth: number,
  maxOperations = Number.POSITIVE_INFINITY,
  codes: PlainBody.Codes | undefined = PlainBody.codesOf(text)
): Either.Either<unknown, JsonProblem> => {
  const plain = codes && PlainBody.read(text, codes, maxDepth, maxOperations)
  return plain === undefined ? parseAny(text, maxDepth, maxOperations) : Either.right(plain)
}

/** `parseBody` of any text whatsoever, in three times the time. */
export const parseAny = (text: string, maxDepth: number, maxOperations: number): Either.Either<unknown, JsonProblem> =>
  Either.try({
    try: () => {
      const parsed: unknown = JSON.parse(text)
      new Scanner(text, maxDepth, maxOperations).envelope(parsed, 0)
      return parsed
    },
    catch: error =>
      error instanceof JsonProblem ? error : new JsonProblem(`the body is not JSON: ${messageOf(error)}`)
  })

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

/**
 * The text of a value that is already in memory: {@link RawJson} as it came, anything else printed.
 *
 * Refused: what JSON cannot say (`undefined`, functions, bigint, cycles, infinities) and nesting beyond `maxDepth`.
 */
export const fromUnknown = (value: unknown, maxDepth: number): Either.Either<JsonText, JsonProblem> => {
  if (value instanceof RawJson) return Either.right(value.text)
  return Either.try({
    try: () => {
      checkTree(value, maxDepth)
      const text: string | undefined = JSON.stringify(value)
      if (text === undefined) throw new JsonProblem("the value says of itself that it is none in JSON")
      return JsonText(text)
    },
    catch: error => (error instanceof JsonProblem ? error : new JsonProblem(messageOf(error)))
  })
}

const checkTree = (value: unknown, levelsLeft: number): void => {
  if (typeof value === "number" && !Number.isFinite(value)) throw new JsonProblem(`${value} is not a JSON number`)
  if (value === undefined || typeof value === "function" || typeof value === "symbol") {
    throw new JsonProblem(`${typeof value} is not a JSON value`)
  }
  if (typeof value !== "object" || value === null) return
  if (levelsLeft === 0) throw new JsonProblem("JSON is nested too deep, or refers to itself")
  // A member that is undefined is left out in print, but an element would turn into null.
  const children = Array.isArray(value) ? value : Object.values(value).filter(child => child !== undefined)
  for (const child of children) checkTree(child, levelsLeft - 1)
}

/** The parsed form, for code in the same process that wants the value rather than its text. */
export const toUnknown = (text: JsonText): unknown => JSON.parse(text)
