/** Characters that are not seen, for the console and the command line. */
import { FastCheck as fc } from "effect"
import { assert, describe, it } from "vitest"
import { escapeOf, hiddenIn, pictureOf, replaceHidden, type TextKind } from "../../src/base/HiddenCharacters.ts"

const kinds: ReadonlyArray<TextKind> = ["name", "text", "part", "json"]

const shown = (text: string, kind: TextKind): string => replaceHidden(text, kind, pictureOf)

const flagOfScotland = "\ud83c\udff4\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}"

/** Text that people write, in which joiners and variation selectors have a purpose. */
const ordinary: ReadonlyArray<string> = [
  "plain, with a tab\tand a line feed\n",
  "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
  "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
  "\u0915\u094d\u200d\u0937",
  "\u845b\u{e0100}",
  "\ud83d\udc69\u200d\ud83d\udcbb and \u2764\ufe0f\u200d\ud83d\udd25, \ud83d\udc4b\ud83c\udffd, 1\ufe0f\u20e3, \u260e\ufe0e",
  flagOfScotland
]

describe("A hidden character", () => {
  it("is shown in each kind of text, as is one that changes the direction of others", () => {
    for (const kind of kinds) {
      assert.strictEqual(
        shown("a\u202eb\u2066c\u200bd\u001b[2J\u007f\u0085\ufeff", kind),
        ["a<U+202E>b<U+2066>c<U+200B>d", "\u241b[2J\u2421<U+0085><U+FEFF>"].join("")
      )
    }
  })

  it("may have a code point above U+FFFF", () => {
    for (const kind of kinds) assert.strictEqual(shown("ok\u{e0072}\u{e006d}", kind), "ok<U+E0072><U+E006D>")
    assert.strictEqual(replaceHidden('"\u{e0072}"', "json", escapeOf), '"\\udb40\\udc72"')
    assert.strictEqual(JSON.parse(replaceHidden('"\u{e0072}\u202e"', "json", escapeOf)), "\u{e0072}\u202e")
  })

  it("is not what text of people needs", () => {
    for (const text of ordinary) assert.strictEqual(shown(text, "text"), text)
  })

  it("is a joiner or a variation selector where it has no purpose", () => {
    assert.strictEqual(shown("rm\u200d a\u200c \ufe0fx\ufe0f", "text"), "rm<U+200D> a<U+200C> <U+FE0F>x<U+FE0F>")
    assert.strictEqual(shown("\ud83d\ude00\ufe0f\ufe0e\u200d", "text"), "\ud83d\ude00\ufe0f<U+FE0E><U+200D>")
    assert.strictEqual(shown("\ud83c\udff4\u{e0072}\u{e006d}", "text"), "\ud83c\udff4<U+E0072><U+E006D>")
  })

  it("is any white space but blanks in a name, and a carriage return in a text", () => {
    assert.strictEqual(shown("a b\t\r\n", "name"), "a b\u2409\u240d\u240a")
    assert.strictEqual(shown("a b\t\r\n", "text"), "a b\t\u240d\n")
    assert.strictEqual(shown("a b\t\r\n", "json"), "a b\t\r\n")
    assert.strictEqual(shown("\u0645\u06cc\u200c\u062e", "name"), "\u0645\u06cc<U+200C>\u062e")
  })

  it("is found where it is", () => {
    const text = '{\r\n\t"a\u200b": "caf\u00e9\u202e\ud83d\ude00\u{e0041}"\n}'
    assert.deepStrictEqual(
      hiddenIn(text, "json"),
      ["\u200b", "\u202e", "\u{e0041}"].map(character => ({ offset: text.indexOf(character), character }))
    )
    assert.deepStrictEqual(hiddenIn('{"a": [1, " b"]}', "json"), [])
  })

  it("is shown in a part of a text as in the whole", () => {
    const pieces = fc.array(fc.string({ unit: fc.constantFrom("a", "\u200d", "\u202e", "\u001b", "\ud83d\ude00") }))
    fc.assert(
      fc.property(pieces, pieces => {
        assert.strictEqual(pieces.map(piece => shown(piece, "part")).join(""), shown(pieces.join(""), "part"))
      })
    )
    assert.strictEqual(shown("\u200d\ud83d\udcbb", "part"), "\u200d\ud83d\udcbb")
  })

  it("does not remain, whatever the text is", () => {
    const unit = fc.constantFrom(..."\u001b\u009b\u202e\u2069\u200b\u200d\ufe0f1\u2764a")
    fc.assert(
      fc.property(fc.string({ unit }), fc.constantFrom(...kinds), (text, kind) => {
        assert.notMatch(shown(text, kind), /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u202a-\u202e\u2066-\u2069]/)
        assert.deepStrictEqual(hiddenIn(shown(text, kind), kind), [])
      })
    )
  })
})
