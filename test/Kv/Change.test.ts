import { describe, expect, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import { JsonText } from "../../src/base/Json/JsonText.ts"
import { decode, type EncodedChange, encode, Records, type StoredChange } from "../../src/Kv/Change.ts"

const texts = fc.oneof(fc.string({ unit: "grapheme" }), fc.constantFrom('"},{"seq":2,', "\\", '\\"', "}{", "ü𝄞"))

/** A value may have what separates records. */
const values = fc.oneof(fc.json(), fc.constantFrom('[{"seq":1},{"seq":2}]', '[{"a":{}},{"seq":3,"op":"set"}]'))

const changes: fc.Arbitrary<ReadonlyArray<StoredChange>> = fc.array(
  fc.record({
    seq: fc.nat(),
    op: fc.constant("set" as const),
    namespace: texts,
    key: texts,
    value: values.map(JsonText),
    version: fc.nat(),
    actor: texts,
    timestamp: fc.nat()
  }),
  { minLength: 1 }
)

const jsonOf = (records: ReadonlyArray<EncodedChange>) => records.map(({ json }) => json)

describe("records in one text", () => {
  it("are those of the list, and the text is kept for all of them only", () => {
    fc.assert(
      fc.property(changes, fc.nat(), fc.nat(), (stored, from, count) => {
        const list = stored.map(encode)
        const text = jsonOf(list).join(",")
        const whole = Records.ofText(text, list.length)
        expect(Records.of(whole).text).toBe(text)
        expect(Records.of([...whole]).size).toBe(text.length)
        expect(jsonOf(whole)).toEqual(jsonOf(list))
        expect(whole.map(decode)).toEqual(list.map(decode))
        expect(Records.of(whole).list.map(({ namespace, seq }) => [seq, namespace])).toEqual(
          stored.map(({ namespace, seq }) => [seq, namespace])
        )
        for (const other of [whole.slice(from, from + count), whole.toReversed(), [...whole, ...whole], list]) {
          expect(Records.of(other).text).toBe(jsonOf(other).join(","))
          expect(Records.of(other).count).toBe(other.length)
        }
      })
    )
  })

  it("are not read from a text with another number of them", () => {
    const [first, second] = Records.ofText('{"seq":1}', 2)
    expect(first?.json).toBe('{"seq":1}')
    expect(() => second?.json).toThrow("there are 1 records instead of 2")
  })
})
