import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck as fc } from "effect"
import { JsonProblem, RawJson } from "../../../src/base/Json/JsonText.ts"
import { Misplaced } from "../../../src/base/Json/ObjectReader.ts"
import { times } from "../../Scale.ts"
import { parseBody } from "./Body.ts"

const maxDepth = 12
const maxOperations = 6

/** A value in one text, whatever the order of members; -0 is not 0. Texts that were kept are shown as their values. */
const show = (result: unknown): string => {
  if (result instanceof RawJson || result instanceof Misplaced) return showText(result.text)
  if (Array.isArray(result)) return `[${result.map(show).join()}]`
  if (typeof result === "object" && result !== null) {
    const members = Object.entries(result).map(([name, member]) => `${JSON.stringify(name)}:${show(member)}`)
    return `{${members.sort().join()}}`
  }
  return Object.is(result, -0) ? "-0" : JSON.stringify(result)
}

/** The tokens of a valid text. */
const tokensOf = (text: string): ReadonlyArray<string> => text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g)!

/**
 * A valid text in the form of {@link show}. `JSON.parse` gets single tokens: on Node 24 and 26 it reads the name `\n` of
 * a member as a backslash, after an object that had that name there (https://github.com/nodejs/node/issues/63785).
 */
const showText = (text: string): string => {
  const tokens = tokensOf(text)
  let next = 0
  const read = (): string => {
    const token = tokens[next++]!
    if (token !== "{" && token !== "[") return show(JSON.parse(token))
    const items: Array<string> = []
    const members = new Map<string, string>()
    while (tokens[next] !== "}" && tokens[next] !== "]") {
      if (token === "[") items.push(read())
      else {
        const name = JSON.stringify(JSON.parse(tokens[next]!))
        next += 2
        members.set(name, read())
      }
      if (tokens[next] === ",") next++
    }
    next++
    if (token === "[") return `[${items.join()}]`
    return `{${[...members]
      .map(member => member.join(":"))
      .sort()
      .join()}}`
  }
  return read()
}

/** What `JSON.parse` makes of a text. */
const parsed = (text: string): string | undefined => {
  try {
    JSON.parse(text)
  } catch {
    return undefined
  }
  return showText(text)
}

/** A text without white space between its tokens. */
const compact = (text: string): string => text.replaceAll(/("(?:[^"\\]|\\.)*")|\s+/g, "$1")

/** The position of a value: the body, its list, an object in that, kept, or anything else. */
type Place = "body" | "list" | "operation" | "value" | "other"

/** Whether a text is to be refused for more than its grammar: checked token by token, in the plainest way. */
const isRefused = (text: string): boolean => {
  const tokens = tokensOf(text)
  let next = 0
  const check = (place: Place, depth: number): boolean => {
    const token = tokens[next++]!
    if (token !== "{" && token !== "[") return /^[-\d]/.test(token) && !Number.isFinite(Number(token))
    const close = token === "{" ? "}" : "]"
    if ((place === "value" || place === "other") && depth >= maxDepth) return true
    const names = new Set<string>()
    for (let count = 0; tokens[next] !== close; count++) {
      if (token === "{") {
        const name = JSON.parse(tokens[next]!) as string
        if (names.has(name) || ((place === "body" || place === "operation") && count === 16)) return true
        names.add(name)
        next += 2
      } else if (place === "list" && count === maxOperations) return true
      const last = token === "{" ? [...names].at(-1) : undefined
      if (checkInner(place, last, depth)) return true
      if (tokens[next] === ",") next++
    }
    next++
    return false
  }
  const checkInner = (place: Place, name: string | undefined, depth: number): boolean => {
    const token = tokens[next]
    if (place === "value" || place === "other") return check(place, depth + 1)
    if (place === "list") return token === "{" ? check("operation", 0) : check("other", 2)
    if (name === "value") return check("value", 0)
    if (place === "body") return name === "operations" && token === "[" ? check("list", 0) : check("other", 1)
    return check("other", 3)
  }
  if (tokens[0] === "[") return true
  return check(tokens[0] === "{" ? "body" : "other", 0)
}

const rawTexts = (result: unknown): ReadonlyArray<string> => {
  if (result instanceof RawJson) return [result.text]
  if (typeof result !== "object" || result === null || result instanceof Misplaced) return []
  return Object.values(result).flatMap(rawTexts)
}

/** Reads a text, and expects what `JSON.parse` and the checks above say. Returns whether it was taken. */
const agree = (given: string): boolean => {
  // Bytes of UTF-8 can hold no half of a surrogate pair.
  const text = given.toWellFormed()
  const result = parseBody(text, maxDepth, maxOperations)
  const expected = parsed(text)
  expect([text, Either.isRight(result)]).toEqual([text, expected !== undefined && !isRefused(text)])
  if (Either.isLeft(result)) {
    if (expected !== undefined) expect(result.left.message).not.toContain("is not JSON")
    return false
  }
  expect(show(result.right)).toBe(expected)
  for (const raw of rawTexts(result.right)) expect(compact(text)).toContain(raw)
  return true
}

const space = fc.constantFrom("", "", "", "", " ", "\n", "\t\r\n ")

const character = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom(..."abcdef ,:{}[]0e-/'~\u007f") },
  {
    weight: 2,
    arbitrary: fc.constantFrom(
      ...'\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u0000 \\u00e9 \\uD83D\\uDE00 \\ud800 \\uABcd'.split(" ")
    )
  },
  { weight: 1, arbitrary: fc.constantFrom("é", "€", "😀", "\u2028", "\ud800") }
)

const text = fc.array(character, { maxLength: 8 }).map(characters => `"${characters.join("")}"`)

const number = fc.oneof(
  fc.constantFrom(..."0 -0 1 -1 10 0.5 -0.0 1e5 1E+5 1e-5 -1.5e-7 2.5E3 1e308 1e-400 9007199254740993".split(" ")),
  fc.constantFrom("1e309", "-1e400", `1${"0".repeat(299)}`, `1${"0".repeat(320)}`, `0.${"3".repeat(320)}`),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map(String),
  fc.integer().map(String)
)

const spaced = (open: string, close: string, parts: ReadonlyArray<string>, spaces: ReadonlyArray<string>): string => {
  let next = 0
  const gap = () => spaces[next++ % spaces.length]!
  const inner = parts.map(part => gap() + part + gap())
  return open + (inner.length === 0 ? gap() : inner.join(",")) + close
}

const spaces = fc.array(space, { minLength: 1, maxLength: 5 })

const name = fc.oneof(fc.constantFrom('"a"', '"b"', '"\\u0061"', '""', '"__proto__"', '"value"', '"ab"', '"ba"'), text)

const member = (name: fc.Arbitrary<string>, content: fc.Arbitrary<string>) =>
  fc.tuple(name, space, space, content).map(([name, before, after, content]) => `${name}${before}:${after}${content}`)

const { value } = fc.letrec<{ value: string; array: string; object: string }>(tie => ({
  value: fc.oneof(
    { maxDepth: 5 },
    fc.oneof(text, number, fc.constantFrom("true", "false", "null")),
    tie("array"),
    tie("object")
  ),
  array: fc
    .tuple(fc.array(tie("value"), { maxLength: 4 }), spaces)
    .map(([parts, gaps]) => spaced("[", "]", parts, gaps)),
  object: fc
    .tuple(fc.array(member(name, tie("value")), { maxLength: 4 }), spaces)
    .map(([parts, gaps]) => spaced("{", "}", parts, gaps))
}))

const anObject = (parts: ReadonlyArray<fc.Arbitrary<string>>) =>
  fc
    .tuple(fc.shuffledSubarray([...parts]), spaces)
    .chain(([some, gaps]) => fc.tuple(...some).map(parts => spaced("{", "}", parts, gaps)))

const known = (name: string, content: fc.Arbitrary<string>) => member(fc.constant(`"${name}"`), content)

const plainName = fc.constantFrom('"k"', '"tenant:a/b"', '"tenant:a/c"', '"é"', '""')

const expiry = [known("ttlMs", number), known("expiresAt", number), known("ifVersion", number)]

const operation = anObject([
  known("op", fc.constantFrom('"set"', '"delete"')),
  known("namespace", fc.oneof(plainName, text)),
  known("key", plainName),
  known("value", value),
  ...expiry
])

const operations = fc
  .tuple(fc.array(operation, { maxLength: maxOperations + 1 }), spaces)
  .map(([parts, gaps]) => spaced("[", "]", parts, gaps))

const aBody = fc.oneof(
  anObject([known("value", value), known("actor", fc.oneof(plainName, text)), ...expiry]),
  anObject([known("operations", operations), known("actor", plainName)]),
  anObject([known("value", value), known("value", value), member(name, value)]),
  value
)

/** A change to a text: what it cuts out, and what it puts there. */
const mutation = fc.tuple(
  fc.double({ min: 0, max: 1, noNaN: true }),
  fc.integer({ min: 0, max: 3 }),
  fc.constantFrom("", "", ...'"\\,:{}[]0-.eux\u0000\n\ufeff')
)

const mutated = (text: string, [where, cut, put]: readonly [number, number, string]): string => {
  const at = Math.floor(where * text.length)
  return text.slice(0, at) + put + text.slice(at + cut)
}

describe("the scanner", () => {
  it("agrees with JSON.parse, and never accepts refused or malformed text", () => {
    let answered = 0
    let answeredMutated = 0
    const numRuns = times(10_000)
    fc.assert(
      fc.property(aBody, mutation, fc.nat(), (body, mutation, end) => {
        if (agree(body)) answered++
        if (agree(mutated(body, mutation))) answeredMutated++
        agree(body.slice(0, end % (body.length + 1)))
      }),
      { numRuns }
    )
    // Otherwise the attempt would have no effect.
    expect(answered).toBeGreaterThan(numRuns / 5)
    expect(answeredMutated).toBeGreaterThan(numRuns / 200)
  })

  it("reads names that JSON.parse of Node 24 and 26 confuses", () => {
    expect(agree('{"value":{"h":1,"\\\\":1}}')).toBe(true)
    expect(agree('{"value":{"h":1,"\\n":1}}')).toBe(true)
  })

  it("finds repeated names among many, and accepts many different ones", () => {
    const names = (count: number) => Array.from({ length: count }, (_, index) => `"n${index}":0`)
    for (const count of [1, 8, 63, 64, 65, 600]) {
      agree(`{"value":{${names(count).join()}}}`)
      for (const again of [0, count >> 1, count - 1]) {
        const text = `{"value":{${names(count).join()},"n${again}":1}}`
        expect(agree(text)).toBe(false)
        expect(parseBody(text, maxDepth, 1)).toEqual(
          Either.left(
            new JsonProblem(
              `the member "n${again}" appears twice in one object`,
              false,
              text.lastIndexOf(`"n${again}"`)
            )
          )
        )
      }
    }
    // Of one hash, as 31 * "A" + "a" is 31 * "B" + "B".
    expect(agree('{"value":{"Aa":1,"BB":2}}')).toBe(true)
    expect(agree('{"value":{"Aa":1,"BB":2,"\\u0041a":3}}')).toBe(false)
    expect(agree('{"value":{"a":{"b":1},"b":{"a":1}}}')).toBe(true)
  })

  // What parsers are known to disagree about.
  it.each([
    ...'[1,] [1 [,1] [1,,2] [1]] ["a [""] {"a":} {"a" {"a":1,} {"a":1,,} {a:1} {\'a\':1} {"a":1 {"a"::1} {,} {1:1} {"a":1}x'.split(
      " "
    ),
    ..."-01 -1. -.1 .5 1. 1.e1 1e 1e+ 1eE2 0x1 0e 0e+1 01 +1 1_000 - -a 1a 1e1.5 Infinity NaN nan --1 0.0.0 ١ 1e-".split(
      " "
    ),
    ..."nul nulll True TRUE tru truee undefined false0 n".split(" "),
    ...String.raw`"\u12" "\u123g" "\U0041" "\x41" "\0" "\a" "\" "\\" "\\\" "\ud800\u" "\ud800\ud800" "\udc00"`.split(
      " "
    ),
    ...["a\tb", "a\nb", "a\u0000b", "a\u001fb", "\u007f\u0080\u00ff", "\u2028\u2029", "\ufeff"].map(
      text => `"${text}"`
    ),
    ...'\'a\' \ufeff"a" "a"b "a""b" /**/1 1// 1\u00a0 1\u000b 1\u000c \u20281 []{} {}[] [[[[[[]]]]]]'.split(" "),
    " 1 ",
    "\r\n\t1",
    "1 2",
    "",
    " ",
    ...String.raw`{"":""} {"\u0000":1} {"a":1,"\u0061":2} {"__proto__":1,"__proto__":2} {"__proto__":{"value":1}}`.split(
      " "
    ),
    '{"a":1}\u0000',
    ..."123123e100000 -123123e100000 1e00000000000000000000000000000000001 -0 -0e1 [-0] 1E400".split(" "),
    `0.${"0".repeat(400)}1`,
    `${"9".repeat(309)}`
  ])("agrees about %j", text => {
    for (const body of [
      text,
      `{"value":${text}}`,
      `{"value":[${text}]}`,
      `{"value":{"a":${text}}}`,
      `{"actor":${text},"value":1}`,
      `{"value":1,"ttlMs":${text}}`,
      `{"operations":${text}}`,
      `{"operations":[${text}]}`,
      `{"operations":[{"op":${text},"namespace":"n","key":"k"}]}`,
      `{"operations":[{"op":"set","namespace":"n","key":"k","value":${text}}]}`,
      `{${text}:1,"value":1}`,
      `{"value":1}${text}`
    ]) {
      agree(body)
    }
  })
})
