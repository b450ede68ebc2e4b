/** The order of keys. */
import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import { compare } from "../../src/Client/KeyOrder.ts"

describe("the order of keys", () => {
  it("is that of their bytes in UTF-8", () => {
    const character = fc.oneof(
      fc.constantFrom("a", "b", "\u0001", "é", "\ud7ff", "\ue000", "\uffff", "\u{10000}", "\u{10ffff}"),
      fc.string({ unit: "grapheme", minLength: 1, maxLength: 1 })
    )
    const text = fc.array(character, { maxLength: 6 }).map(parts => parts.join(""))
    fc.assert(
      fc.property(text, text, (a, b) => {
        assert.strictEqual(Math.sign(compare(a, b)), Buffer.compare(Buffer.from(a), Buffer.from(b)))
      }),
      { numRuns: 500 }
    )
  })
})
