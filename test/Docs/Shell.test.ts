import { describe, expect, it } from "vitest"
import { hasLines, readable } from "./Shell.ts"

describe("the shell for the commands of pages", () => {
  it.each([
    ["15\n", "5", false],
    ["51\n", "5", false],
    ["a\n  5 \nb\n", "5", true],
    ["5", "5", true],
    ["a=15,\n", "a=…5…", true],
    ["aa=15,\n", "a=…5…", false],
    ["a=15,\n", "a=…5", false],
    ["a\n5\n", "…a…5…", false],
    ["one\nor\ntwo\n", "one\ntwo", true],
    ["two\none\n", "one\ntwo", false],
    ["one two\n", "one\ntwo", false]
  ])("takes %j for %j: %s", (output, text, expected) => {
    expect(hasLines(output, text)).toBe(expected)
  })

  it.each([
    ["one\r\ntwo\r\n", "one\ntwo\n"],
    ["HTTP/1.1 200 OK\r\r\n", "HTTP/1.1 200 OK\n"],
    ["\u001b[31mred\u001b[39m\r\n", "red\n"],
    ["\r\u001b[K# 50 %\r\u001b[K## 100 %\r\ndone\r\n", "## 100 %\ndone\n"]
  ])("reads of %j on a terminal %j", (output, text) => {
    expect(readable(output)).toBe(text)
  })
})
