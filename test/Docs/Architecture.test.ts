/** The table of architecture.md has every file and folder of `src`, and no others. */
import { existsSync, readdirSync } from "node:fs"
import { describe, expect, it } from "vitest"
import { read, root } from "./Page.ts"

/** The names in the first column of the table. */
const named: ReadonlyArray<string> = read("docs/architecture.md")
  .split("\n")
  .flatMap(line => /^\| (`[^|]*`) \|/.exec(line)?.[1]?.match(/(?<=`)[^` ]+(?=`)/g) ?? [])

describe("architecture.md", () => {
  it("describes every file and folder of src", () => {
    const missing = readdirSync(`${root}src`).filter(name => !named.includes(name))
    expect(missing).toStrictEqual([])
  })

  it("names only existing files, and none twice", () => {
    expect(
      named.filter((name, index) => !existsSync(`${root}src/${name}`) || named.indexOf(name) < index)
    ).toStrictEqual([])
  })
})
