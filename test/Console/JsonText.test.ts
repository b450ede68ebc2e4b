/** JSON as the console shows it, and messages about it. */
import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import { compact, format, parse, positionOf, problemOf } from "../../src/Console/JsonText.ts"
import { times } from "../Scale.ts"

describe("JSON as text", () => {
  it("has as many levels as a service can allow", () => {
    const text = "[".repeat(1000) + "]".repeat(1000)
    assert.isUndefined(problemOf(text))
    assert.strictEqual(compact(format(text)), text)
    assert.deepStrictEqual(problemOf(`[${text}]`), {
      message: "JSON is nested more than 1000 levels deep",
      offset: 1000
    })
  })

  it("is formatted and made compact without another meaning, again and again", () => {
    fc.assert(
      fc.property(fc.jsonValue(), value => {
        const text = JSON.stringify(value)
        assert.strictEqual(compact(text), text)
        assert.strictEqual(compact(format(text)), text)
        assert.strictEqual(format(text), JSON.stringify(value, undefined, 2))
      }),
      { numRuns: times(100) }
    )
  })

  it("keeps numbers, escapes and the order of members as they are written", () => {
    const text = '{"b":12345678901234567890,"2":-0,"1":1.0,"e":1E40,"\\u0061":"\\u00e9\\/"}'
    assert.strictEqual(compact(format(text)), text)
  })

  it("may have a string of any length", () => {
    const text = `["${"x".repeat(10_000_000)}${"\\n".repeat(1_000_000)}"]`
    assert.strictEqual(compact(format(text)), text)
  })

  it("is the text of each value of an answer", () => {
    const values = ["1.0", '{"2":"é","1":[]}', "null"]
    const [first = "", ...others] = values.map((value, index) => `{"key":"${index}","value":${value}}`)
    assert.deepStrictEqual(parse(first), { key: "0", value: "1.0" } as never)
    const page: unknown = parse(`{"changes":[${others.join()}],"lastSeq":2}`)
    assert.deepStrictEqual(page, {
      changes: [
        { key: "1", value: values[1] },
        { key: "2", value: "null" }
      ],
      lastSeq: 2
    })
    assert.deepStrictEqual(parse('{"type":"ping"}'), { type: "ping" } as never)
  })

  it.each([
    ['{\n  "a": 1,\n  "b" 2\n}', "A colon is expected", 3, 7],
    ['{"a": 1, "a": 2}', 'The member "a" appears twice in one object', 1, 10],
    ['{"a": 1e400}', "The number 1e400 is beyond the range of a double", 1, 7],
    ["[1, 2", "A comma or a closing bracket is expected", 1, 6],
    ["[1 2]", "A comma or a closing bracket is expected", 1, 4],
    ["{a: 1}", "A name in quotes is expected", 1, 2],
    ["[nul]", "A value is expected", 1, 2],
    ['["\\x"]', "An escape is expected", 1, 4],
    ['["é\nb"]', "A closing quote or an escape such as \\n is expected", 1, 4],
    ['["a', "A closing quote or an escape such as \\n is expected", 1, 4],
    ["", "It is empty", 1, 1],
    ["1 2", "The end of the text is expected", 1, 3]
  ])("reports the problem of %j and its position", (text, message, line, column) => {
    const problem = problemOf(text)!
    assert.strictEqual(problem.message, message)
    assert.deepStrictEqual(positionOf(text, problem.offset), { line, column })
  })
})
