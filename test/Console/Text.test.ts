/** Names and values as the console shows them. */
import { assert, describe, it } from "vitest"
import { messageOf } from "../../src/Console/Service/Failure.ts"
import {
  ago,
  bytes,
  isolated,
  shortTime,
  timeOrDate,
  visible,
  visibleJson,
  visibleText
} from "../../src/Console/Widgets/Text.ts"

describe("A name in the console", () => {
  it("shows hidden characters, and those that change the direction of others", () => {
    assert.strictEqual(visible("\u202egnp.exe"), "<U+202E>gnp.exe")
    assert.strictEqual(visible("\u200b"), "<U+200B>")
    assert.strictEqual(visible("line\nbreak\u0000\u007f\u0085"), "line\u240abreak\u2400\u2421<U+0085>")
    assert.strictEqual(visible(" lead and trail "), "\u2420lead and trail\u2420")
    assert.strictEqual(visible(" "), "\u2420")
  })

  it("is unchanged otherwise", () => {
    for (const name of ["tenant:acme/settings", "caf\u00e9", "\u05d0\u05d1", "\u4e2d", "\ud83d\ude00", "<b>", "a b"]) {
      assert.strictEqual(visible(name), name)
    }
  })

  it("does not change the direction of a sentence", () => {
    assert.strictEqual(isolated("\u05d0\u2069\u202eb"), "\u2068\u05d0<U+2069><U+202E>b\u2069")
  })
})

describe("A text in the console", () => {
  it("keeps its lines and tabs, and shows other hidden characters", () => {
    assert.strictEqual(visibleText("a\u202eb\r\n\tc\u0000"), "a<U+202E>b\u240d\n\tc\u2400")
  })
})

describe("A message of a failure in the console", () => {
  it("shows hidden characters of what it quotes", () => {
    assert.strictEqual(messageOf(new Error("no file \u202egnp.exe")), "no file <U+202E>gnp.exe")
  })
})

describe("A value in the console", () => {
  it("is the same value with escapes for its hidden characters", () => {
    const value = { "\u202egnp.exe": "a\u200b\u2028\u007f\ufeff", caf\u00e9: ["\u05d0"] }
    const shown = visibleJson(JSON.stringify(value))
    assert.deepStrictEqual(JSON.parse(shown), value)
    assert.strictEqual(shown, '{"\\u202egnp.exe":"a\\u200b\\u2028\\u007f\\ufeff","caf\u00e9":["\u05d0"]}')
  })

  it("keeps its white space", () => {
    const text = '{\r\n\t"a": "\u202e"\n}'
    assert.strictEqual(visibleJson(text), '{\r\n\t"a": "\\u202e"\n}')
  })
})

describe("A time in the console", () => {
  it("is in the largest whole unit that has passed", () => {
    const passed = [4, 59, 60, 3599, 3600, 86_399, 86_400].map(seconds => ago(0, seconds * 1000))
    assert.deepStrictEqual(passed, ["now", "59 s ago", "1 min ago", "59 min ago", "1 h ago", "23 h ago", "1 d ago"])
  })

  it("has its date unless it is today", () => {
    const noon = new Date(2026, 4, 7, 12, 0, 1).getTime()
    assert.deepStrictEqual(
      [shortTime(noon, noon + 1), shortTime(noon, noon + 86_400_000)],
      ["12:00:01", "7 May 12:00:01"]
    )
    assert.strictEqual(timeOrDate(noon, noon), "12:00:01")
  })

  it("has no size that was not measured", () => {
    assert.deepStrictEqual([bytes(Number.NaN), bytes(1536)], ["\u2013", "1.5 KiB"])
  })
})
