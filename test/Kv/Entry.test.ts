import { describe, expect, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import { JsonText } from "../../src/base/Json/JsonText.ts"
import { decode, type EncodedChange, encode, Records, type StoredChange } from "../../src/Kv/Change.ts"
import { problemOfActor, problemOfName } from "../../src/Kv/Endpoints/Operations.ts"
import { tenantOf } from "../../src/Kv/Entry.ts"
import { times } from "../Scale.ts"

const numRuns = times(200)

describe("problemOfName", () => {
  it.each(["k", " ", "...", ". ", "a/b", "%00", "\u0001", "é", "😀", "\ufeff", "__proto__", "k".repeat(1024)])(
    "takes %j",
    name => expect(problemOfName("key", name, 1024)).toBeUndefined()
  )

  it.each([
    ["", "namespace is empty; it takes 1 to 10 bytes of UTF-8"],
    [".", 'namespace must not be "."'],
    ["..", 'namespace must not be ".."'],
    ["a\u0000b", "namespace must not contain U+0000"],
    ["\ud800", "namespace must not contain a lone surrogate"],
    ["a\udc00", "namespace must not contain a lone surrogate"],
    ["\ude00\ud83d", "namespace must not contain a lone surrogate"],
    ["12345678901", "namespace has 11 bytes of UTF-8; the limit is 10"],
    ["éééééé", "namespace has 12 bytes of UTF-8; the limit is 10"],
    ["😀😀😀", "namespace has 12 bytes of UTF-8; the limit is 10"]
  ])("refuses %j", (name, problem) => expect(problemOfName("namespace", name, 10)).toBe(problem))

  it("counts bytes of UTF-8, the limit included", () => {
    fc.assert(
      fc.property(fc.fullUnicodeString({ minLength: 1 }), name => {
        fc.pre(!name.includes("\u0000") && name !== "." && name !== "..")
        const bytes = new TextEncoder().encode(name).length
        expect(problemOfName("key", name, bytes)).toBeUndefined()
        expect(problemOfName("key", name, bytes - 1)).toBe(`key has ${bytes} bytes of UTF-8; the limit is ${bytes - 1}`)
      }),
      { numRuns }
    )
  })
})

describe("problemOfActor", () => {
  it.each(["", ".", "api", "Zoë", "a".repeat(256)])("takes %j", actor =>
    expect(problemOfActor(actor, 256)).toBeUndefined()
  )

  it.each([
    ["\u0000", "actor must not contain U+0000"],
    ["x\udfff", "actor must not contain a lone surrogate"],
    ["a".repeat(257), "actor has 257 bytes of UTF-8; the limit is 256"]
  ])("refuses %j", (actor, problem) => expect(problemOfActor(actor, 256)).toBe(problem))
})

describe("tenantOf", () => {
  it.each([
    ["tenant:t1/area", "t1"],
    ["tenant:t1/area/more", "t1"],
    ["tenant:t1", "t1"],
    ["tenant:t1/", "t1"],
    ["tenant:a:b/c", "a:b"],
    ["tenant:", ""],
    ["tenant:/x", ""],
    ["tenant", ""],
    ["Tenant:t1/x", ""],
    [" tenant:t1/x", ""],
    ["x/tenant:t1/y", ""],
    ["tenant%3At1/x", ""],
    ["", ""],
    ["tenant:😀/x", "😀"]
  ])("of %j is %j", (namespace, tenant) => expect(tenantOf(namespace)).toBe(tenant))

  it("is the text between the prefix and the first slash", () => {
    fc.assert(
      fc.property(fc.fullUnicodeString(), fc.option(fc.fullUnicodeString()), (tenant, rest) => {
        fc.pre(!tenant.includes("/"))
        expect(tenantOf(`tenant:${tenant}${rest === null ? "" : `/${rest}`}`)).toBe(tenant)
      }),
      { numRuns }
    )
  })
})

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
