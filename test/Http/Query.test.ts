import { expect, it } from "vitest"
import { parseQuery } from "../../src/Http/Router.ts"

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
