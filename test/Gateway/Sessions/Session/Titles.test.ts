/** Titles that are made of messages and of a model's answers. */
import { describe, expect, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import * as Titles from "../../../../src/Gateway/Sessions/Session/Titles.ts"
import { times } from "../../../Scale.ts"

const numRuns = times(100)

describe("Titles", () => {
  it("are the first words of a message, within a line", () => {
    expect(Titles.titleOf("  Hello \n there ")).toBe("Hello there")
    expect(Titles.titleOf("x".repeat(200))).toBe(`${"x".repeat(60)}…`)
    expect(Titles.titleOf(`${"word ".repeat(30)}`)).toMatch(/^(word ){8,11}word…?$/)
    fc.assert(
      fc.property(fc.fullUnicodeString({ maxLength: 300 }), text => {
        const title = Titles.titleOf(text)
        expect(title.length).toBeLessThanOrEqual(61)
        expect(title.isWellFormed()).toBe(true)
        expect(title).not.toMatch(/[\r\n]/)
      }),
      { numRuns }
    )
  })

  it("are taken from a model's answer as far as that is one", () => {
    expect(Titles.fromAnswer('"Tides and the Moon"\n\nHope that helps!')).toBe("Tides and the Moon")
    expect(Titles.fromAnswer("## **Tides**")).toBe("Tides")
    expect(Titles.fromAnswer(" \n")).toBeUndefined()
  })

  it("are made of the beginning of a text, however long and odd it is", () => {
    // With one look back for each blank these would take hours.
    const blanks = " ".repeat(4_000_000)
    expect(Titles.fromAnswer(`"Tides${blanks}and the Moon"`)).toBe("Tides")
    expect(Titles.fromAnswer(`${blanks}Tides${blanks}`)).toBe("Tides")
    expect(Titles.fromAnswer(`a${"*".repeat(4_000_000)}b`)).toBe("a")
    expect(Titles.fromAnswer(`a${"*".repeat(100)}b`)).toBe(`a${"*".repeat(59)}…`)
    expect(Titles.titleOf(`a${blanks}b`)).toBe("a")
    expect(Titles.titleOf(`${"a".repeat(59)}😀b`)).toBe(`${"a".repeat(59)}…`)
    expect(Titles.titleOf(`a${" ".repeat(998)}😀`)).toBe("a")
    expect(Titles.titleOf("\ud83d")).toBe("\ufffd")
  })
})
