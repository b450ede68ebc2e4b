import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck as fc } from "effect"
import { fromUnknown, JsonText, RawJson, toUnknown } from "../../src/Json/JsonText.ts"
import { parseBody } from "../../src/Json/ParseBody.ts"

const numRuns = 200 * Number(process.env.SOAK ?? 1)

/** The text that is kept of the member `value`. */
const kept = (valueText: string, maxDepth = 256): string => {
  const body = Either.getOrThrow(parseBody(`{"value":${valueText}}`, maxDepth)) as { readonly value: unknown }
  expect(body.value).toBeInstanceOf(RawJson)
  return (body.value as RawJson).text
}

const problem = (text: string, maxDepth = 256, maxElements?: number) =>
  Either.match(parseBody(text, maxDepth, maxElements), {
    onLeft: ({ message, overLimit }) => ({ message, overLimit }),
    onRight: () => undefined
  })

/** Prints a value with white space taken from `spaces` in turn, wherever the grammar lets it stand. */
const printSpaced = (value: unknown, spaces: ReadonlyArray<string>): string => {
  let next = 0
  const space = () => spaces[next++ % spaces.length]!
  const print = (value: unknown): string => {
    if (typeof value !== "object" || value === null) return space() + JSON.stringify(value) + space()
    const inner = Array.isArray(value)
      ? value.map(print)
      : Object.entries(value).map(([name, member]) => `${space()}${JSON.stringify(name)}${space()}:${print(member)}`)
    const body = inner.length === 0 ? space() : inner.join(",")
    return space() + (Array.isArray(value) ? `[${body}]` : `{${body}}`) + space()
  }
  return print(value)
}

const spaces = fc.array(fc.constantFrom("", " ", "\n", "\t", "\r\n", "  "), { minLength: 1, maxLength: 7 })

const nested = (levels: number, open = "[", close = "]") => open.repeat(levels) + close.repeat(levels)

describe("parseBody", () => {
  it("keeps any value as compact text, whatever white space it came with", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 6 }), spaces, (value, spaces) => {
        expect(kept(printSpaced(value, spaces))).toBe(JSON.stringify(value))
      }),
      { numRuns }
    )
  })

  it("takes strings of quotes, backslashes and spaces for what they are", () => {
    const text = fc.stringOf(fc.constantFrom('"', "\\", " ", "\n", ",", ":", "{", "}", "[", "]", "u", "é", "\ud800"))
    fc.assert(
      fc.property(fc.dictionary(text, fc.array(text)), spaces, (value, spaces) => {
        expect(kept(printSpaced(value, spaces))).toBe(JSON.stringify(value))
      }),
      { numRuns }
    )
  })

  it("agrees with JSON.parse about everything but values, and never throws", () => {
    fc.assert(
      fc.property(fc.oneof(fc.json(), fc.string(), fc.stringOf(fc.constantFrom(...'{}[]",:\\ 1e-0tn'))), text => {
        let parsed: { readonly value: unknown } | undefined
        try {
          parsed = { value: JSON.parse(text) }
        } catch {
          parsed = undefined
        }
        const body = parseBody(text, 256)
        if (parsed === undefined || Array.isArray(parsed.value)) expect(Either.isLeft(body)).toBe(true)
        else if (Either.isRight(body)) expect(JSON.stringify(body.right)).toBe(JSON.stringify(parsed.value))
        else if (!text.trimStart().startsWith("[")) expect(body.left.message).not.toContain("is not JSON")
      }),
      { numRuns: numRuns * 2 }
    )
  })

  it.each([
    '{"b":1,"a":2,"10":3,"9":4}',
    '{"2":{"1":{"0":[]}},"1":0}',
    '{"__proto__":{"a":1},"constructor":null}',
    '"\\ud800"',
    '"\\u0061\\/"',
    '"\\\\"',
    '"\\\\\\""',
    "1.0",
    "-0",
    "1E+2",
    "12345678901234567890",
    "1e-400",
    "1.7976931348623157e308",
    "-1.7976931348623157e308",
    "null",
    '""'
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

  it("takes bodies that are no objects", () => {
    for (const text of ["1", "null", '"value"', "{}", " true "]) {
      const body = JSON.stringify(Either.getOrThrow(parseBody(text, 256)))
      expect(body).toBe(JSON.stringify(JSON.parse(text)))
    }
  })

  it("lets members called __proto__ be members", () => {
    const body = Either.getOrThrow(parseBody('{"__proto__":{"value":1},"value":{"__proto__":2}}', 256)) as object
    expect(Object.getPrototypeOf(body)).toBe(Object.prototype)
    expect(Object.keys(body)).toEqual(["__proto__", "value"])
    expect(({} as Record<string, unknown>).value).toBeUndefined()
  })

  it.each([
    "",
    " ",
    "{",
    '{"a":[1,]}',
    '{"a":1,}',
    "nul",
    "{} {}",
    "'a'",
    "01",
    "1.",
    "NaN",
    '"\n"',
    '"\\x"',
    "\ufeff{}"
  ])("refuses %j as no JSON", text => {
    expect(problem(text)).toMatchObject({
      message: expect.stringContaining("the body is not JSON"),
      overLimit: false
    })
  })

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

  it("lets the same name stand in different objects", () => {
    expect(kept('{"a":{"a":[{"a":1},{"a":2}]},"b":{"a":1},"a ":0}')).toBe(
      '{"a":{"a":[{"a":1},{"a":2}]},"b":{"a":1},"a ":0}'
    )
  })

  it("shortens a long name in its message", () => {
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

  it("counts the levels of a value, not of what it stands in", () => {
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

  it("takes batches even where values may hold only one level", () => {
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

  it("answers about bodies of 100,000 levels", () => {
    for (const text of [nested(100_000), nested(100_000, '{"value":', "}").replace(":}", ":0}"), "[".repeat(100_000)]) {
      expect(problem(text)).toBeDefined()
      expect(problem(`{"value":${text}}`)).toBeDefined()
      expect(problem(`{"operations":[{"value":${text}}]}`)).toBeDefined()
    }
  })

  it("takes values with very many members, elements or escapes", () => {
    const members = `{${Array.from({ length: 100_000 }, (_, index) => `"${index} ":${index}`).join()}}`
    const elements = `[${Array(300_000).fill("1").join()}]`
    const escapes = `"${'\\"\\\\'.repeat(200_000)}"`
    const slashes = `"${"\\\\".repeat(400_000)}"`
    for (const text of [members, elements, escapes, slashes]) expect(kept(text) === text).toBe(true)
    expect(kept(elements.replaceAll(",", " ,\n")) === elements).toBe(true)
  })
})

describe("fromUnknown", () => {
  it("prints any JSON value, and toUnknown reads it back", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 6 }), value => {
        const text = Either.getOrThrow(fromUnknown(value, 256))
        expect(text).toBe(JSON.stringify(value))
        expect(JSON.stringify(toUnknown(text))).toBe(text)
      }),
      { numRuns }
    )
  })

  it("hands on raw text as it came", () => {
    expect(fromUnknown(new RawJson(JsonText('{"2":1,"1":2}')), 1)).toEqual(Either.right('{"2":1,"1":2}'))
  })

  it("prints what JSON can say of it", () => {
    expect(fromUnknown({ a: undefined, b: new Date(0), c: "\ud800" }, 2)).toEqual(
      Either.right('{"b":"1970-01-01T00:00:00.000Z","c":"\\ud800"}')
    )
  })

  const circle: Record<string, unknown> = {}
  circle.self = circle
  it.each<[string, unknown]>([
    ["undefined", undefined],
    ["an undefined element", [undefined]],
    ["a hole", Array(1)],
    ["a function", () => 1],
    ["a function inside", { a: [() => 1] }],
    ["a symbol", Symbol("s")],
    ["a bigint", 1n],
    ["NaN", Number.NaN],
    ["an infinity inside", { a: [Number.POSITIVE_INFINITY] }],
    ["a circle", circle],
    ["what denies itself", Object.create({ toJSON: () => undefined })]
  ])("refuses %s", (_, value) => {
    const result = fromUnknown(value, 256)
    expect(result).toMatchObject({ _tag: "Left", left: { _tag: "JsonProblem", message: expect.stringMatching(/./) } })
  })

  it("limits nesting exactly", () => {
    const depth = 5
    expect(Either.isRight(fromUnknown(JSON.parse(nested(depth)), depth))).toBe(true)
    expect(Either.isLeft(fromUnknown(JSON.parse(nested(depth + 1)), depth))).toBe(true)
    expect(Either.isLeft(fromUnknown(JSON.parse(nested(100_000)), 256))).toBe(true)
  })
})
