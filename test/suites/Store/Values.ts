import { expect } from "@effect/vitest"
import { Option } from "effect"
import { JsonText } from "../../../src/base/Json/JsonText.ts"
import { type Check, feed, get, list, mebibyte, remove, write } from "./Fixture.ts"

/** JSON texts that a parser and a printer may change. */
export const texts: ReadonlyArray<JsonText> = [
  "null",
  "true",
  "false",
  "0",
  "-0",
  "1.0",
  "1E2",
  "-1e-7",
  "9007199254740993",
  "1.7976931348623157e308",
  "1e-400",
  '""',
  '" "',
  '"null"',
  '"\\"\\\\\\/\\b\\f\\n\\r\\t"',
  '"\\ud800"',
  '"\\udc00\\ud800"',
  '"\\u0000"',
  '"\\u0061"',
  '"\u2028\u2029\ufeff\u007f"',
  '"é日本😀\u{10ffff}\uffff"',
  "'single' quotes in a string".replace(/^|$/g, '"'),
  "[]",
  "{}",
  "[[],{},[null]]",
  '{"":0}',
  '{"__proto__":{"polluted":true},"constructor":1,"toString":null}',
  '{"b":1,"a":2,"10":3,"9":4,"-1":5}',
  `${"[".repeat(256)}${"]".repeat(256)}`,
  `${'{"a":'.repeat(256)}0${"}".repeat(256)}`
].map(text => JsonText(text))

/** Values are returned character by character. */
export const values = (check: Check) => {
  check("every kind of value is returned as the text that was stored", function* () {
    const all = [...texts, JsonText(`"${"x".repeat(mebibyte - 2)}"`)]
    for (const [index, value] of all.entries()) {
      const key = String(index).padStart(3, "0")
      yield* write([{ op: "set", namespace: "n", key, value, expiresAt: null }])
      expect(Option.getOrThrow(yield* get("n", key)).value).toBe(value)
    }
    expect((yield* list("n")).entries.map(entry => entry.value)).toEqual(all)
    yield* remove("n", "000")
    expect((yield* feed()).map(change => change.value)).toEqual([...all, null])
  })
}
