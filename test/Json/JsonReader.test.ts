import { describe, expect, it, vi } from "@effect/vitest"
import { Either } from "effect"
import { Misplaced, parseAny, parseBody } from "../../src/Json/ParseBody.ts"

const problem = (text: string) =>
  Either.match(parseBody(text, 256), { onLeft: ({ message }) => message, onRight: () => undefined })

describe("the reader of any body", () => {
  it("passes over arrays and objects in any other place", () => {
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

  it("refuses a value over its limit, and counts no white space", () => {
    const limited = (value: string, most: number) =>
      Either.match(parseAny(`{"operations":[{"value":1},{"value":${value}}]}`, 256, 9, most), {
        onLeft: ({ message, overLimit }) => ({ message, overLimit }),
        onRight: () => undefined
      })
    for (const value of ["[1,2,3,4]", '{"a":[{}]}', '"1234567"', "123456789"]) {
      const over = {
        message: `operations[1].value has more than ${value.length - 1} bytes of JSON; the limit is ${value.length - 1}`,
        overLimit: true
      }
      for (const spaced of [value, value.replaceAll(/[[\]{},]/g, " $& ")]) {
        expect(limited(spaced, value.length)).toBeUndefined()
        expect(limited(spaced, value.length - 1)).toEqual(over)
      }
    }
  })

  it("limits the members of a body and of an operation, and not those of values", () => {
    const members = (count: number) => Array.from({ length: count }, (_, index) => `"${index}":0`).join()
    expect(problem(`{${members(16)}}`)).toBeUndefined()
    expect(problem(`{${members(17)}}`)).toBe("the body has more than 16 members, which is the limit")
    expect(problem(`{"operations":[{},{${members(17)}}]}`)).toContain("operations[1] has more than 16 members")
    expect(problem(`{"value":{${members(17)}}}`)).toBeUndefined()
  })

  it("hands nothing to JSON.parse but single strings and numbers, whatever a body holds", () => {
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
        expect(Either.getOrThrow(Either.flip(parseBody(text, 256, 1000, undefined, 1024 * 1024))).message).toContain(
          message
        )
      }
      expect(parse.mock.calls.filter(([text]) => text.length > 16)).toEqual([])
    } finally {
      parse.mockRestore()
    }
  })
})
