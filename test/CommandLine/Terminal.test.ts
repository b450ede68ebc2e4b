/** Untrusted text on a terminal. */
import { assert, describe, it } from "vitest"
import { clean } from "../../src/CommandLine/Terminal/Text.ts"

describe("Text on a terminal", () => {
  it("has the ends of its lines without carriage returns, and shows all others", () => {
    assert.strictEqual(clean("a\r\nb\r\r\nc\rd"), "a\nb\nc\u240dd")
  })

  it("may have a million carriage returns, each of which costs the same", () => {
    assert.strictEqual(clean("\r".repeat(1_000_000)), "\u240d".repeat(1_000_000))
  })
})
