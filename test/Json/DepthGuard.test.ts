import { describe, expect, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import { DepthGuard } from "../../src/Json/DepthGuard.ts"

const numRuns = 300 * Number(process.env.SOAK ?? 1)

const depthOf = (value: unknown): number =>
  typeof value === "object" && value !== null ? 1 + Math.max(0, ...Object.values(value).map(depthOf)) : 0

/** Feeds a text in pieces of these sizes in turn. */
const admits = (text: string, most: number, sizes: ReadonlyArray<number>): boolean => {
  const bytes = Buffer.from(text)
  const guard = new DepthGuard(most)
  for (let at = 0, turn = 0; at < bytes.length; turn++) {
    const size = sizes[turn % sizes.length]!
    if (!guard.admits(bytes.subarray(at, at + size))) return false
    at += size
  }
  return true
}

const sizes = fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 1, maxLength: 5 })

const text = fc.stringOf(fc.constantFrom('"', "\\", "[", "]", "{", "}", "é", "a"))

describe("the guard of nesting", () => {
  it("counts the levels of any JSON text, wherever it is cut", () => {
    const value = fc.letrec(tie => ({
      value: fc.oneof({ maxDepth: 6 }, text, tie("array"), tie("object")),
      array: fc.array(tie("value"), { maxLength: 3 }),
      object: fc.dictionary(text, tie("value"), { maxKeys: 3 })
    })).value
    fc.assert(
      fc.property(value, sizes, (value, sizes) => {
        const depth = depthOf(value)
        const json = JSON.stringify(value)
        expect(admits(json, depth, sizes)).toBe(true)
        if (depth > 0) expect(admits(json, depth - 1, sizes)).toBe(false)
      }),
      { numRuns }
    )
  })

  it("says nothing of what is no JSON", () => {
    for (const json of ["]]]]", '"[[[[', '\\"[', "{]{]"]) expect(admits(json, 2, [1])).toBe(true)
  })
})
