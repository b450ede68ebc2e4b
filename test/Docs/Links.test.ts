/**
 * Checks that the links between pages have targets, that each page can be found, and that the table of architecture.md has
 * every file and folder of `src`, and no others.
 */
import { existsSync, readdirSync } from "node:fs"
import { dirname, join, normalize, relative } from "node:path"
import { describe, expect, it } from "vitest"
import { pages, read, root } from "./Page.ts"

/** A page without its blocks and pieces of code. */
const proseOf = (page: string): string =>
  read(page)
    .replace(/^ *```.*?^ *```$/gms, "")
    .replace(/`[^`\n]*`/g, code => code.replace(/[[\]()<>]/g, ""))

/** The name by which GitHub links a heading. */
const anchorOf = (heading: string): string =>
  heading
    .replace(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\p{M}\p{Pc}\- ]/gu, "")
    .replaceAll(" ", "-")

const anchorsOf = (page: string): ReadonlySet<string> => {
  const seen = new Map<string, number>()
  const anchors = [
    ...read(page)
      .replace(/^ *```.*?^ *```$/gms, "")
      .matchAll(/^#{1,6} (.*)$/gm)
  ].map(([, heading = ""]) => {
    const anchor = anchorOf(heading)
    const count = seen.get(anchor) ?? 0
    seen.set(anchor, count + 1)
    return count === 0 ? anchor : `${anchor}-${count}`
  })
  return new Set(anchors)
}

interface Link {
  readonly page: string
  readonly target: string
}

const links: ReadonlyArray<Link> = pages.flatMap(page =>
  [...proseOf(page).matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target = ""]) => ({ page, target }))
    .filter(({ target }) => !/^[a-z]+:/.test(target))
)

/** The file that a link leads to, from the root of the repository. */
const fileOf = ({ page, target }: Link): string => {
  const [path = ""] = target.split("#")
  return path === "" ? page : normalize(relative(root, join(root, dirname(page), path)))
}

it("the links of the pages lead to existing files and headings", () => {
  expect(links.length).toBeGreaterThan(100)
  const dead = links.filter(link => {
    const file = fileOf(link)
    const [, anchor] = link.target.split("#")
    if (!existsSync(join(root, file))) return true
    return anchor !== undefined && pages.includes(file) && !anchorsOf(file).has(anchor)
  })
  expect(dead).toEqual([])
})

it("README.md leads to each page", () => {
  const found = new Set(links.filter(({ page }) => page === "README.md").map(fileOf))
  const indexes = ["CONTRIBUTING.md", "docs/embed/embedding.md", "docs/contribute/decisions/README.md"]
  const behind = new Set([...found, ...links.filter(({ page }) => indexes.includes(page)).map(fileOf)])
  expect(pages.filter(page => page !== "README.md" && !behind.has(page))).toEqual([])
})

it("the pages begin with their readers", () => {
  expect(pages.filter(page => page !== "README.md" && !/^# .*\n\nFor /.test(read(page)))).toEqual([])
})

it("the pages of the package lead to none that only the repository has", () => {
  const isPacked = (file: string) => /^(?:README\.md$|docs\/(?!contribute|images))/.test(file)
  expect(links.filter(link => link.page !== "README.md" && isPacked(link.page) && !isPacked(fileOf(link)))).toEqual([])
})

/** The names in the first column of the table. */
const named: ReadonlyArray<string> = read("docs/contribute/architecture.md")
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
