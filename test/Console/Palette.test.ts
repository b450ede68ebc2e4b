/** The colors of the pages, in both schemes: contrast as WCAG 2.2 AA wants it (1.4.3 and 1.4.11). */
import { readFileSync } from "node:fs"
import { assert, describe, it } from "vitest"
import { sourceOf } from "./Page.ts"

type Pair = readonly [light: string, dark: string]

const css = readFileSync(sourceOf("Style/theme.css"), "utf8")
const colors = new Map<string, Pair>(
  [...css.matchAll(/--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)/g)].map(([, name, light, dark]) => [
    name!,
    [light!, dark!]
  ])
)

const linear = (channel: number): number => (channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4)

const luminance = (color: string): number => {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map(at => linear(Number.parseInt(color.slice(at, at + 2), 16) / 255))
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue
}

const contrast = (a: string, b: string): number => {
  const [lighter = 0, darker = 0] = [luminance(a), luminance(b)].sort((x, y) => y - x)
  return (lighter + 0.05) / (darker + 0.05)
}

/** Each of the colors on each of the grounds. */
const weak = (names: ReadonlyArray<string>, grounds: ReadonlyArray<string>, least: number): ReadonlyArray<string> =>
  names.flatMap(name =>
    grounds.flatMap(ground =>
      ([0, 1] as const).flatMap(scheme => {
        const [color, behind] = [name, ground].map(each => colors.get(each)?.[scheme])
        assert.isDefined(color, name)
        assert.isDefined(behind, ground)
        const found = contrast(color!, behind!)
        return found >= least ? [] : [`${name} on ${ground}, ${scheme === 0 ? "light" : "dark"}: ${found.toFixed(2)}`]
      })
    )
  )

const grounds = ["ground", "surface", "sunken", "hover", "chosen"]

describe("The colors of the pages", () => {
  it("text has a contrast of 4.5 and more", () => {
    assert.deepStrictEqual(weak(["text", "muted", "accent"], grounds, 4.5), [])
    assert.deepStrictEqual(weak(["text", "muted"], ["added", "removed"], 4.5), [])
    assert.deepStrictEqual(weak(["on-accent"], ["accent", "accent-hover"], 4.5), [])
    for (const tone of ["good", "warn", "bad", "info"]) {
      assert.deepStrictEqual(weak([tone], [`${tone}-ground`, "surface", "sunken", "hover"], 4.5), [])
    }
    const json = ["json-name", "json-string", "json-number", "json-word"]
    assert.deepStrictEqual(weak(json, ["sunken", "surface"], 4.5), [])
  })

  it("borders of controls, the focus, lines and marks have a contrast of 3 and more", () => {
    const marks = ["line-strong", "focus", "series-1", "series-2", "series-3", "series-4"]
    assert.deepStrictEqual(weak(marks, grounds, 3), [])
  })
})
