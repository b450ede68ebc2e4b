/** Names and values as the console shows them. */
import { assert, describe, it } from "vitest"
import { isolated, visible, visibleJson } from "../../src/Console/Widgets/Text.ts"

describe("A name in the console", () => {
  it("has nothing that is not seen, or that turns others around", () => {
    assert.strictEqual(visible("\u202egnp.exe"), "<U+202E>gnp.exe")
    assert.strictEqual(visible("\u200b"), "<U+200B>")
    assert.strictEqual(visible("line\nbreak\u0000\u007f\u0085"), "line\u240abreak\u2400\u2421<U+0085>")
    assert.strictEqual(visible(" lead and trail "), "\u2420lead and trail\u2420")
    assert.strictEqual(visible(" "), "\u2420")
  })

  it("is shown as it is otherwise", () => {
    for (const name of ["tenant:acme/settings", "caf\u00e9", "\u05d0\u05d1", "\u4e2d", "\ud83d\ude00", "<b>", "a b"]) {
      assert.strictEqual(visible(name), name)
    }
  })

  it("does not leave its place in a sentence", () => {
    assert.strictEqual(isolated("\u05d0\u2069\u202eb"), "\u2068\u05d0<U+2069><U+202E>b\u2069")
  })
})

describe("A value in the console", () => {
  it("stays the same value where its characters are made visible", () => {
    const value = { "\u202egnp.exe": "a\u200b\u2028\u007f\ufeff", caf\u00e9: ["\u05d0"] }
    const shown = visibleJson(JSON.stringify(value))
    assert.deepStrictEqual(JSON.parse(shown), value)
    assert.strictEqual(shown, '{"\\u202egnp.exe":"a\\u200b\\u2028\\u007f\\ufeff","caf\u00e9":["\u05d0"]}')
  })
})
