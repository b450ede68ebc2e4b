/** JSON as the command line and the console read it, with the text of values. */
import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import * as ExactJson from "../../../src/base/Json/ExactJson.ts"
import { JsonProblem, JsonText, RawJson } from "../../../src/base/Json/JsonText.ts"
import { times } from "../../Scale.ts"

/** The problem of a value. */
const problemOf = (text: string): JsonProblem | undefined => {
  const found = ExactJson.value(text)
  return found instanceof JsonProblem ? found : undefined
}

describe("JSON of the service", () => {
  it("keeps the text of values", () => {
    const text =
      '{"items":[{"namespace":"n","key":"k","value":{"b":12345678901234567890,"1":[1.0,"\\u00e9"]},"version":1}]}'
    assert.strictEqual(ExactJson.stringify(ExactJson.parse(text)), text)
    const change = '{"type":"changes","changes":[{"seq":1,"op":"set","value":-0.0,"extra":{"a":[1]}}],"lastSeq":1}'
    assert.strictEqual(ExactJson.stringify(ExactJson.parse(change)), change)
    assert.strictEqual(
      ExactJson.stringify({ type: "x", absent: undefined, list: [null, "é"] }),
      '{"type":"x","list":[null,"é"]}'
    )
  })

  it("keeps every value that JSON has", () => {
    fc.assert(
      fc.property(fc.json({ noUnicodeString: false }), json => {
        const text = `{"key":"k","value":${json}}`
        assert.deepStrictEqual(JSON.parse(ExactJson.stringify(ExactJson.parse(text))), JSON.parse(text))
      }),
      { numRuns: times(200) }
    )
  })

  const refused: ReadonlyArray<readonly [string, RegExp]> = [
    ["hello", /^it is not JSON: unexpected "h" at position 0$/],
    ["", /^it is empty$/],
    ["[1,", /^it is not JSON: it ends too early$/],
    ['"é" x', /^it is not JSON: unexpected "x" at position 4$/],
    ["1}", /^it is not JSON: unexpected "}" at position 1$/],
    ["1,2", /^it is not JSON: unexpected "," at position 1$/],
    ['{"a":1,"a":2}', /^the member "a" appears twice in one object$/],
    ["1e400", /beyond the range of a double/]
  ]
  it.each(refused)("refuses the value %j", (text, problem) => {
    assert.match(problemOf(text)?.message ?? "", problem)
  })

  it("takes a value with white space around it", () => {
    assert.deepStrictEqual(ExactJson.value(' {"a" : 1}\n'), new RawJson(JsonText('{"a":1}')))
  })

  it("has the position of a problem in characters, not in bytes", () => {
    assert.strictEqual(problemOf('["é€😀", x]')?.offset, 9)
    assert.strictEqual(problemOf('{"é":1,\n"é":2}')?.offset, 8)
    assert.strictEqual(problemOf("[".repeat(1001))?.offset, 1000)
  })

  it("decodes names and values that are not ASCII", () => {
    const members = { namespace: "\ufeffé", key: "😀€", value: new RawJson(JsonText('["é","\ufeff"]')) }
    assert.deepStrictEqual(ExactJson.readMembers(ExactJson.stringify(members)), { members })
  })
})
