import { describe, expect, it, vi } from "@effect/vitest"
import { Either } from "effect"
import { JsonText, RawJson } from "../../../src/base/Json/JsonText.ts"
import { Misplaced } from "../../../src/base/Json/ObjectReader.ts"
import { parseBody } from "./Body.ts"

/** The text that is kept of the member `value`. */
const kept = (valueText: string, maxDepth = 256): string => {
  const body = Either.getOrThrow(parseBody(`{"value":${valueText}}`, maxDepth)) as { readonly value: unknown }
  expect(body.value).toBeInstanceOf(RawJson)
  return (body.value as RawJson).text
}

const problem = (text: string, maxDepth = 256, maxElements?: number, valueBytes?: number) =>
  Either.match(parseBody(text, maxDepth, maxElements, valueBytes), {
    onLeft: ({ message, overLimit }) => ({ message, overLimit }),
    onRight: () => undefined
  })

const message = (text: string) => problem(text)?.message

const nested = (levels: number, open = "[", close = "]") => open.repeat(levels) + close.repeat(levels)

describe("the reader of a body", () => {
  it.each([
    ...'{"b":1,"a":2,"10":3,"9":4} {"2":{"1":{"0":[]}},"1":0} {"__proto__":{"a":1},"constructor":null}'.split(" "),
    ...String.raw`"\ud800" "\u0061\/" "\\" "\\\"" "" null`.split(" "),
    ..."1.0 -0 1E+2 12345678901234567890 1e-400 1.7976931348623157e308 -1.7976931348623157e308".split(" ")
  ])("keeps %s letter by letter", text => {
    expect(kept(text)).toBe(text)
    expect(kept(` ${text}\n`)).toBe(text)
  })

  it("keeps the white space within strings", () => {
    expect(kept('[ "a b" , "\\n" , { "c d" : " " } ]')).toBe('["a b","\\n",{"c d":" "}]')
  })

  it("keeps values in a body and within operations, and nothing else", () => {
    const text = '{"value":[1],"actor":"a","operations":[{"op":"set","value":{"value":{ "value":2 }}},{"value":3}]}'
    expect(Either.getOrThrow(parseBody(text, 256))).toEqual({
      value: new RawJson(JsonText("[1]")),
      actor: "a",
      operations: [
        { op: "set", value: new RawJson(JsonText('{"value":{"value":2}}')) },
        { value: new RawJson(JsonText("3")) }
      ]
    })
  })

  it("keeps members called __proto__", () => {
    const body = Either.getOrThrow(parseBody('{"__proto__":{"value":1},"value":{"__proto__":2}}', 256)) as object
    expect(Object.getPrototypeOf(body)).toBe(Object.prototype)
    expect(Object.keys(body)).toEqual(["__proto__", "value"])
    expect(({} as Record<string, unknown>).value).toBeUndefined()
  })

  it.each(["", " ", "{", '{"a":[1,]}', '{"a":1,}', "nul", "{} {}", "01", '"\n"', "\ufeff{}"])(
    "refuses %j as no JSON",
    text => {
      expect(problem(text)).toEqual({ message: expect.stringContaining("the body is not JSON"), overLimit: false })
    }
  )

  it.each([
    ['{"a":1,"a":2}', '"a"'],
    ['{"a":1,"\\u0061":2}', '"a"'],
    ['{"value":1,"b":0,"value":2}', '"value"'],
    ['{"value":{"x":[{"b":1,"c":2,"b":1}]}}', '"b"'],
    ['{"operations":[{"op":"set","op":"delete"}]}', '"op"'],
    ['{"":1,"":2}', '""'],
    ['{"__proto__":1,"__proto__":2}', '"__proto__"'],
    ['{"a\\"":1,"a\\u0022":2}', '"a\\""'],
    ['{"\\ud83d\\ude00":1,"😀":2}', '"😀"']
  ])("refuses the repeated member of %s", (text, name) => {
    expect(problem(text)?.message).toBe(`the member ${name} appears twice in one object`)
  })

  it("reaches nothing beyond a body by members that are repeated", () => {
    for (const inner of [
      '{"__proto__":{"value":1}}',
      '{"constructor":{"value":1}}',
      '{"toString":{"value":1}}',
      '[{"value":1}]'
    ]) {
      for (const last of ["{}", "[]", "1", '{"__proto__":1}']) {
        for (const text of [`{"a":${inner},"a":${last}}`, `{"operations":[${inner}],"operations":[${last}]}`]) {
          expect(problem(text)?.message).toContain("appears twice")
        }
      }
    }
    for (const reached of [Object.prototype, Object, Object.prototype.toString, Array.prototype]) {
      expect(Object.hasOwn(reached, "value")).toBe(false)
    }
  })

  it("truncates a long name in its message", () => {
    const name = "n".repeat(100_000)
    expect(problem(`{"${name}":1,"${name}":2}`)!.message.length).toBeLessThan(200)
  })

  it.each(["1e400", "-1e400", "[1,2e308]", '{"a":1e309}', `1${"0".repeat(400)}`])(
    "refuses %s as beyond a double",
    text => {
      expect(problem(`{"value":${text}}`)?.message).toContain("beyond the range of a double")
      expect(problem(`{"other":${text}}`)?.message).toContain("beyond the range of a double")
    }
  )

  it("counts the levels of a value, not of the body", () => {
    for (const [open, close] of [
      ["[", "]"],
      ['{"a":[', "]}"]
    ] as const) {
      const each = open.length === 1 ? 1 : 2
      for (const depth of [2, 4, 256, 1000]) {
        const exact = nested(depth / each, open, close)
        const over = `[${exact}]`
        expect(kept(exact, depth)).toBe(exact)
        expect(problem(`{"value":${over}}`, depth)?.message).toBe(`JSON is nested more than ${depth} levels deep`)
        expect(problem(`{"operations":[{"op":"set","value":${exact}}]}`, depth)).toBeUndefined()
        expect(problem(`{"operations":[{"op":"set","value":${over}}]}`, depth)?.message).toContain(`${depth} levels`)
      }
    }
  })

  it("accepts batches even if values may have only one level", () => {
    expect(problem('{"operations":[{"op":"set","value":[1]}]}', 1)).toBeUndefined()
    expect(problem('{"operations":[{"op":"set","value":[[]]}]}', 1)?.message).toContain("1 levels")
  })

  it("limits the operations of a batch, and no other array", () => {
    const operations = (count: number) => `{"operations":[${Array(count).fill('{"value":[1,2,3,4,5]}').join()}]}`
    expect(problem(operations(3), 256, 3)).toBeUndefined()
    expect(problem(operations(4), 256, 3)).toEqual({
      message: "operations has more than 3 elements; the limit is 3",
      overLimit: true
    })
    const four = "[1,2,3,4]"
    for (const text of [
      `{"value":1,"other":${four}}`,
      `{"other":{"operations":${four}}}`,
      `{"operations":[{"operations":${four}}]}`
    ]) {
      expect(problem(text, 256, 3)).toBeUndefined()
    }
  })

  it("accepts values with very many members, elements or escapes", () => {
    const members = `{${Array.from({ length: 100_000 }, (_, index) => `"${index} ":${index}`).join()}}`
    const elements = `[${Array(300_000).fill("1").join()}]`
    const escapes = `"${'\\"\\\\'.repeat(200_000)}"`
    const slashes = `"${"\\\\".repeat(400_000)}"`
    for (const text of [members, elements, escapes, slashes]) expect(kept(text) === text).toBe(true)
    expect(kept(elements.replaceAll(",", " ,\n")) === elements).toBe(true)
  })

  it("skips arrays and objects in any other place", () => {
    const { other, operations, ...rest } = Either.getOrThrow(
      parseBody('{"other":{"value":[1, 2]},"operations":[[ ],{"op":["a"]}],"__proto__":[]}', 256)
    ) as { readonly other: unknown; readonly operations: ReadonlyArray<unknown> }
    expect(other).toBeInstanceOf(Misplaced)
    expect(String(other)).toBe('{"value":[1, 2]}')
    expect(Reflect.ownKeys(other as object)).toEqual([])
    expect(operations.map(operation => operation instanceof Misplaced)).toEqual([true, false])
    expect(JSON.stringify(operations)).toBe('[[],{"op":["a"]}]')
    expect(Object.keys(rest)).toEqual(["__proto__"])
    const long = Either.getOrThrow(parseBody(`{"a":[${"1,".repeat(100)}1]}`, 256)) as { readonly a: unknown }
    expect(String(long.a)).toBe(`[${"1,".repeat(31)}1…`)
  })

  it("refuses an array or object beyond the limit of a value, and does not count white space", () => {
    const limited = (value: string, most: number) =>
      problem(`{"operations":[{"value":1},{"value":${value}}]}`, 256, 9, most)
    for (const value of ["[1,2,3,4]", '{"a":[{}],"é":1}', '{"a":1,"b":[1,2,"123456789"]}']) {
      const most = Buffer.byteLength(value.slice(0, value.lastIndexOf(",") + 1))
      const over = {
        message: `operations[1].value has more than ${most - 1} bytes of JSON; the limit is ${most - 1}`,
        overLimit: true
      }
      for (const spaced of [value, value.replaceAll(/[[\]{},]/g, " $& ")]) {
        expect(limited(spaced, most)).toBeUndefined()
        expect(limited(spaced, most - 1)).toEqual(over)
      }
    }
  })

  it("limits the members of a body and of an operation, and not those of values", () => {
    const members = (count: number) => Array.from({ length: count }, (_, index) => `"${index}":0`).join()
    expect(message(`{${members(16)}}`)).toBeUndefined()
    expect(message(`{${members(17)}}`)).toBe("the body has more than 16 members, which is the limit")
    expect(message(`{"operations":[{},{${members(17)}}]}`)).toContain("operations[1] has more than 16 members")
    expect(message(`{"value":{${members(17)}}}`)).toBeUndefined()
  })

  it("gives JSON.parse only single strings and numbers", () => {
    const size = 2 * 1024 * 1024
    const deep = "JSON is nested more than 256 levels deep"
    const refused = [
      ["[".repeat(size), "the body must be an object, not an array"],
      [` [${"[],".repeat(size / 3)}[]]`, "the body must be an object, not an array"],
      [`{"other":[${"{},".repeat(size / 3)}{}],"value":1}`, "other must not be an array or object"],
      [`{"operations":[{},{"op":{${'"a":0,'.repeat(size / 6)}`, 'the member "a" appears twice'],
      [`{"operations":[{},{"op":[${"0,".repeat(size / 2)}`, "operations[1].op must not be an array or object"],
      [`{"operations":[{},[${"0,".repeat(size / 2)}`, "operations[1] must not be an array or object"],
      ['{"a":'.repeat(size / 5), deep],
      [`{"value":${"[".repeat(size)}`, deep],
      [`{"operations":[{"value":${'{"a":'.repeat(size / 5)}`, deep],
      [`{"operations":[{"op":${"[".repeat(size)}`, deep],
      [`{"operations":[${"[],".repeat(size / 3)}[]]}`, "operations has more than 1000 elements; the limit is 1000"],
      [`{"value":[${",".repeat(size)}]}`, 'unexpected "," at position 10'],
      [`{"value":[${"[],".repeat(size / 3)}[]]}`, "value has more than 1048576 bytes"],
      [`{${Array.from({ length: size / 16 }, (_, index) => `"${index}":[]`).join()}}`, "more than 16 members"]
    ] as const
    const parse = vi.spyOn(JSON, "parse")
    try {
      for (const [text, message] of refused) {
        expect(Either.getOrThrow(Either.flip(parseBody(text, 256, 1000, 1024 * 1024))).message).toContain(message)
      }
      expect(parse.mock.calls.filter(([text]) => text.length > 16)).toEqual([])
    } finally {
      parse.mockRestore()
    }
  })
})
