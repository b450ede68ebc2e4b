import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck as fc } from "effect"
import { fromUnknown, JsonText, RawJson, toUnknown } from "../../../src/base/Json/JsonText.ts"
import { times } from "../../Scale.ts"

const numRuns = times(200)

const nested = (levels: number) => "[".repeat(levels) + "]".repeat(levels)

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

  it("keeps raw text", () => {
    expect(fromUnknown(new RawJson(JsonText('{"2":1,"1":2}')), 1)).toEqual(Either.right('{"2":1,"1":2}'))
  })

  it("prints what JSON can represent", () => {
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
