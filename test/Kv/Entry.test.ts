import { describe, expect, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
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
