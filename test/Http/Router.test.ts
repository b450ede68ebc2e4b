import { FastCheck as fc } from "effect"
import { describe, expect, it } from "vitest"
import { parseQuery, Router } from "../../src/Http/Router.ts"

const router = new Router<string>()
for (const [method, template] of [
  ["GET", "/"],
  ["GET", "/kv/:namespace"],
  ["GET", "/kv/:namespace/:key"],
  ["PUT", "/kv/:namespace/:key"],
  ["GET", "/kv/fixed/deep/end"],
  ["POST", "/kv/fixed"],
  ["GET", "/changes"],
  ["GET", "/changes/stream"]
] as const) {
  router.add(method, template, `${method} ${template}`)
}

const find = (method: string, path: string) => {
  const match = router.find(method, path)
  return match === undefined ? undefined : [match.value, match.params]
}

describe("Router", () => {
  it("finds routes by method and path, with parameters as they were written", () => {
    expect(find("GET", "/")).toEqual(["GET /", {}])
    expect(find("GET", "/kv/a%2Fb")).toEqual(["GET /kv/:namespace", { namespace: "a%2Fb" }])
    expect(find("PUT", "/kv/a/b")).toEqual(["PUT /kv/:namespace/:key", { namespace: "a", key: "b" }])
    expect(find("GET", "/kv/a/")).toEqual(["GET /kv/:namespace/:key", { namespace: "a", key: "" }])
    expect(find("GET", "/changes/stream")).toEqual(["GET /changes/stream", {}])
  })

  it("treats HEAD as GET, and no other method as another", () => {
    expect(find("HEAD", "/changes")).toEqual(["GET /changes", {}])
    expect(find("HEAD", "/kv/fixed")).toEqual(["GET /kv/:namespace", { namespace: "fixed" }])
    expect(find("POST", "/changes")).toBeUndefined()
  })

  it("backtracks to a parameter if a static segment does not match", () => {
    expect(find("GET", "/kv/fixed/deep")).toEqual(["GET /kv/:namespace/:key", { namespace: "fixed", key: "deep" }])
    expect(find("GET", "/kv/fixed/deep/end")).toEqual(["GET /kv/fixed/deep/end", {}])
    expect(find("GET", "/kv/fixed/deep/else")).toBeUndefined()
    expect(find("GET", "/kv/fixed")).toEqual(["GET /kv/:namespace", { namespace: "fixed" }])
  })

  it("recognizes a path with segments after a name, as if a slash is not encoded", () => {
    for (const path of ["/kv/a/b/c", "/kv/a/b/", "/kv/fixed/deep/else", "/kv/fixed/deep/end/"]) {
      expect([path, router.goesBeyondName(path)]).toEqual([path, true])
    }
    for (const path of ["/", "/kv", "/kv/", "/kv/a", "/changes/stream/", "/else/a/b/c", "/".repeat(9999)]) {
      expect([path, router.goesBeyondName(path)]).toEqual([path, false])
    }
  })

  it("decodes static segments before it compares them", () => {
    expect(find("GET", "/%63hanges")).toEqual(["GET /changes", {}])
    expect(find("GET", "/changes%2Fstream")).toBeUndefined()
  })

  it("accepts only paths, and drops no slash", () => {
    for (const path of ["", "*", "changes", "http://host/changes", "//changes", "/changes/", "/changes//stream"]) {
      expect([path, find("GET", path)]).toEqual([path, undefined])
    }
  })

  it("decodes any two segments", () => {
    const segment = fc.string().map(encodeURIComponent)
    fc.assert(
      fc.property(segment, segment, (namespace, key) => {
        expect(find("PUT", `/kv/${namespace}/${key}`)).toEqual(["PUT /kv/:namespace/:key", { namespace, key }])
      })
    )
  })
})

describe("parseQuery", () => {
  it("reads a parameter once, and all values of a repeated one", () => {
    expect(parseQuery("")).toEqual({})
    expect(parseQuery("a=1&b=x%20y&c")).toEqual({ a: "1", b: "x y", c: "" })
    expect(parseQuery("a=1&a=2&a=3")).toEqual({ a: ["1", "2", "3"] })
  })

  it("handles names such as __proto__", () => {
    const params = parseQuery("__proto__=x&__proto__=y&constructor=z")
    expect(Object.keys(params)).toEqual(["__proto__", "constructor"])
    expect(Object.getPrototypeOf(params)).toBe(Object.prototype)
    expect(Object.getOwnPropertyDescriptor(params, "__proto__")?.value).toEqual(["x", "y"])
  })
})
