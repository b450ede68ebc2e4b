/** The tree of namespaces in the console. */
import { FastCheck as fc } from "effect"
import { assert, describe, it } from "vitest"
import { treeRows } from "../../src/Console/Store/Namespaces/NamespaceTree.ts"

const itself = (name: string): string => name

const shown = (names: ReadonlyArray<string>, ...closed: ReadonlyArray<string>): ReadonlyArray<string> =>
  treeRows(names, itself, start => closed.includes(start)).map(
    ({ depth, isOpen, item, label, size }) =>
      `${"  ".repeat(depth)}${label}${item === undefined ? "" : ` = ${item}`}${size > 0 ? ` (${size}${isOpen ? "" : " closed"})` : ""}`
  )

describe("the tree of namespaces", () => {
  it("groups names that begin alike, and joins parts that lead to one name", () => {
    const names = ["cities", "tenant:a", "tenant:a/b/c", "tenant:a/b/d", "tenant:e/f/g"]
    assert.deepStrictEqual(shown(names), [
      "cities = cities",
      "tenant:a = tenant:a (2)",
      "  b/ (2)",
      "    c = tenant:a/b/c",
      "    d = tenant:a/b/d",
      "tenant:e/f/g = tenant:e/f/g"
    ])
    assert.deepStrictEqual(shown(names, "tenant:a/b/", "cities/"), [
      "cities = cities",
      "tenant:a = tenant:a (2)",
      "  b/ (2 closed)",
      "tenant:e/f/g = tenant:e/f/g"
    ])
  })

  it("keeps empty parts", () => {
    assert.deepStrictEqual(shown(["/", "a//b", "a/"]), ["/ = /", "a/ = a/ (1)", "  b = a//b"])
  })

  it("has each name once, and no two rows with one id", () => {
    const name = fc
      .array(fc.constantFrom("a", "b", "/", "ab"), { minLength: 1, maxLength: 6 })
      .map(parts => parts.join(""))
    fc.assert(
      fc.property(fc.uniqueArray(name, { maxLength: 20 }), names => {
        const rows = treeRows(names, itself, () => false)
        assert.sameMembers(
          rows.flatMap(({ item }) => (item === undefined ? [] : [item])),
          names
        )
        assert.strictEqual(new Set(rows.map(({ id }) => id)).size, rows.length)
        for (const { id, item } of rows) if (item !== undefined) assert.strictEqual(id, item)
      }),
      { seed: 1 }
    )
  })
})
