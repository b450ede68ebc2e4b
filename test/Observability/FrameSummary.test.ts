import { assert, describe, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import * as FrameSummary from "../../src/Observability/FrameSummary.ts"

describe("a frame in debug logs", () => {
  it("is shown with names and numbers, and the length of text", () => {
    const frame = {
      type: "create_session",
      id: "r1",
      agentType: "coder",
      title: "hush",
      depth: 3,
      secrets: { API_KEY: "sesame" },
      environment: { REGION: "eu" },
      list: ["sesame"],
      none: null,
      session: { id: "s1", state: "active", title: "hush", nested: { id: "n" } },
      error: { code: "conflict", message: "sesame", retryable: false }
    }
    assert.deepStrictEqual(FrameSummary.ofText(JSON.stringify(frame)), {
      type: "create_session",
      id: "r1",
      agentType: "coder",
      title: "<4 characters>",
      depth: 3,
      secrets: "<1 members>",
      environment: "<1 members>",
      list: "<1 elements>",
      none: null,
      session: { id: "s1", state: "active", title: "<4 characters>", nested: "<1 members>" },
      error: { code: "conflict", message: "<6 characters>", retryable: false }
    })
  })

  it("is not parsed if it is long or not JSON", () => {
    assert.strictEqual(FrameSummary.ofText("sesame{"), "<7 characters>")
    assert.strictEqual(FrameSummary.ofText("[".repeat(70_000)), "<70000 characters>")
    assert.deepStrictEqual(FrameSummary.ofText(`{"type":"send_message","content":"${"x".repeat(70_000)}"}`), {
      type: "send_message",
      frame: "<70036 characters>"
    })
    assert.strictEqual(FrameSummary.ofText('["sesame"]'), "<1 elements>")
    assert.strictEqual(FrameSummary.ofText('"sesame"'), "<6 characters>")
  })

  it("has a bounded size and shows no unknown text", () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string({ maxLength: 200 }), fc.jsonValue({ maxDepth: 4 })), frame => {
        const shown = JSON.stringify(FrameSummary.ofValue(frame))
        assert.isBelow(shown.length, 40_000)
      })
    )
    const many = Object.fromEntries(Array.from({ length: 1000 }, (_, index) => [`m${index}`, "sesame".repeat(1000)]))
    const shown = JSON.stringify(FrameSummary.ofValue(many))
    assert.notInclude(shown, "sesame")
    assert.isBelow(shown.length, 2000)
    assert.deepStrictEqual(FrameSummary.ofValue({ id: "x".repeat(129) }), { id: "<129 characters>" })
  })
})
