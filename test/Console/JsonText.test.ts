/** JSON as text: what the console reads and writes is what JSON.parse reads, and the text stays as it is. */
import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import { compact, elementsOf, format, membersOf, positionOf, problemOf } from "../../src/Console/Json/JsonText.ts"

const json = fc.json({ noUnicodeString: false })

/** Texts that are nearly JSON. */
const damaged = fc
  .tuple(json, fc.nat(), fc.constantFrom("", ",", ":", "]", "}", "[", '"', "\\", "-", "0", ".", "e", "tru", " ", "\n"))
  .map(([text, at, piece]) => {
    const index = at % (text.length + 1)
    return text.slice(0, index) + piece + text.slice(index + 1)
  })

const parses = (text: string): boolean => {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

/** What the store refuses beyond the grammar. */
const isOfStore = /Duplicate|too large|levels/

describe("JSON as text", () => {
  it("has as many levels as a service can allow", () => {
    const text = "[".repeat(1000) + "]".repeat(1000)
    assert.isUndefined(problemOf(text))
    assert.strictEqual(compact(format(text)), text)
    assert.deepStrictEqual(problemOf("[".repeat(1001)), { message: "More than 1000 levels of nesting", offset: 1000 })
  })

  it("is right where JSON.parse takes it", () => {
    fc.assert(
      fc.property(fc.oneof(json, damaged), text => {
        const problem = problemOf(text)
        const isRight = problem === undefined || isOfStore.test(problem.message)
        assert.isTrue(parses(text) ? isRight : problem !== undefined, `${text}: ${problem?.message}`)
      }),
      { numRuns: 1000 }
    )
  })

  it("is formatted and made compact without another meaning, again and again", () => {
    fc.assert(
      fc.property(fc.jsonValue(), value => {
        const text = JSON.stringify(value)
        assert.strictEqual(compact(text), text)
        assert.strictEqual(compact(format(text)), text)
        assert.strictEqual(format(text), JSON.stringify(value, undefined, 2))
      })
    )
  })

  it("keeps numbers, escapes and the order of members as they are written", () => {
    const text = '{"b":12345678901234567890,"2":-0,"1":1.0,"e":1E400,"\\u0061":"\\u00e9\\/"}'
    assert.include(problemOf(text)!.message, "too large")
    const kept = text.replace("1E400", "1E40")
    assert.isUndefined(problemOf(kept))
    assert.strictEqual(compact(format(kept)), kept)
  })

  it("may be a string of any length", () => {
    const text = `"${"x".repeat(10_000_000)}\\n"`
    assert.isUndefined(problemOf(text))
    assert.strictEqual(membersOf(`{"a":${text}}`).get("a")?.length, text.length)
  })

  it("is taken apart into the text of its members and elements", () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), fc.array(fc.jsonValue()), (object, array) => {
        for (const write of [JSON.stringify, (u: unknown) => JSON.stringify(u, undefined, 1)]) {
          assert.deepStrictEqual(
            [...membersOf(write(object))].map(([name, text]) => [name, JSON.parse(text)]),
            Object.entries(JSON.parse(write(object)))
          )
          assert.deepStrictEqual(
            elementsOf(write(array)).map(text => JSON.parse(text)),
            JSON.parse(write(array))
          )
        }
      })
    )
  })

  it.each([
    ['{\n  "a": 1,\n  "b" 2\n}', "A colon is missing before 2", 3, 7],
    ['{"a": 1, "a": 2}', 'Duplicate name "a"', 1, 10],
    ["[1, 2", "A comma or ] is missing before the end", 1, 6],
    ["[1 2]", "A comma or ] is missing before 2", 1, 4],
    ["{a: 1}", "a is not a JSON value", 1, 2],
    ["{1: 1}", "A name in quotes is missing before 1", 1, 2],
    ["[nul]", "nul is not a JSON value", 1, 2],
    ['["\\x"]', "\\x is not a JSON escape", 1, 3],
    ['["a\nb"]', "A string must not contain a line break; write \\n", 1, 4],
    ['["a', "The string is not closed", 1, 2],
    ["", "A value is missing before the end", 1, 1],
    ["1 2", "Unexpected text after the value", 1, 3]
  ])("reports the problem of %j and its position", (text, message, line, column) => {
    const problem = problemOf(text)!
    assert.strictEqual(problem.message, message)
    assert.deepStrictEqual(positionOf(text, problem.offset), { line, column })
  })
})
