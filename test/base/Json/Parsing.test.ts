import { describe, expect, it, vi } from "@effect/vitest"
import { Either, FastCheck as fc } from "effect"
import { excess, excessOfLarge } from "../../../src/base/Json/Parsing.ts"
import * as PlatformEvent from "../../../src/Upstream/PlatformEvent.ts"
import { times } from "../../Scale.ts"

const numRuns = times(300)

/** Levels, and members and elements; what is empty counts as if it had one. */
const shapeOf = (value: unknown): { readonly levels: number; readonly members: number } => {
  if (typeof value !== "object" || value === null) return { levels: 0, members: 0 }
  const parts = Object.values(value).map(shapeOf)
  return {
    levels: 1 + Math.max(0, ...parts.map(({ levels }) => levels)),
    members: parts.reduce((sum, { members }) => sum + members, Math.max(1, parts.length))
  }
}

const text = fc.stringOf(fc.constantFrom('"', "\\", "[", "]", "{", "}", ",", "é"))

const { value } = fc.letrec(tie => ({
  value: fc.oneof({ maxDepth: 5 }, text, tie("array"), tie("object")),
  array: fc.array(tie("value"), { maxLength: 3 }),
  object: fc.dictionary(text, tie("value"), { maxKeys: 3 })
}))

describe("the shape of a JSON text", () => {
  it("is counted correctly with any strings", () => {
    fc.assert(
      fc.property(value, fc.boolean(), (value, spaced) => {
        const { levels, members } = shapeOf(value)
        const json = JSON.stringify(value, null, spaced ? 1 : 0)
        expect(excess(json, { levels, members })).toBeUndefined()
        if (levels === 0) return
        expect(excess(json, { levels: levels - 1, members })).toBe(`is nested more than ${levels - 1} levels deep`)
        expect(excess(json, { levels, members: members - 1 })).toBe(`has more than ${members - 1} members and elements`)
      }),
      { numRuns }
    )
  })

  it("is counted without an error in malformed JSON", () => {
    for (const json of ["", '"', '"\\', '"\\"', "]]]", "}{][", '"a" "', '"[[[[', '\\"[', "{]{"]) {
      expect(excess(json, { levels: 2, members: 9 })).toBeUndefined()
    }
  })

  it("of a small text is not checked", () => {
    expect(excessOfLarge("[".repeat(16 * 1024), { levels: 1, members: 1 })).toBeUndefined()
    expect(excessOfLarge("[".repeat(16 * 1024 + 1), { levels: 1, members: 1 })).toBeDefined()
  })

  it("prevents parsing a frame of the platform that would take seconds", () => {
    const parse = vi.spyOn(JSON, "parse")
    try {
      for (const many of ["[".repeat(300_000), "[],".repeat(300_000), '{"a":'.repeat(300_000)]) {
        const rejected = PlatformEvent.fromFrame(`{"type":"t","x":[${many}`)
        expect(Either.getOrThrow(Either.flip(rejected))).toMatchObject({
          problem: expect.stringMatching(/nested more than 1000|more than 32768 members/)
        })
      }
      expect(parse).not.toHaveBeenCalled()
    } finally {
      parse.mockRestore()
    }
    expect(Either.isRight(PlatformEvent.fromFrame(`{"type":"t","x":["${"[".repeat(300_000)}"]}`))).toBe(true)
  })
})
