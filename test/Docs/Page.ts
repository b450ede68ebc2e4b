/** The pages of the documentation, and the blocks of code in them. */
import { spawnSync } from "node:child_process"
import { readdirSync, readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { transformSync } from "esbuild"

export const root = fileURLToPath(new URL("../../", import.meta.url))

/** Whether a program can be run on this machine. */
export const isRunnable = (program: string, ...args: ReadonlyArray<string>): boolean =>
  spawnSync(program, args, { stdio: "ignore" }).status === 0

/** README.md, CONTRIBUTING.md and the pages below `docs/`, by their paths from the root of the repository. */
export const pages: ReadonlyArray<string> = [
  "README.md",
  "CONTRIBUTING.md",
  ...readdirSync(`${root}docs`, { recursive: true, encoding: "utf8" })
    .filter(name => name.endsWith(".md"))
    .map(name => `docs/${name}`)
    .sort()
]

export const read = (page: string): string => readFileSync(`${root}${page}`, "utf8")

/** A block of code between two fences. */
export interface Fence {
  readonly page: string
  /** Of its first fence, from 1. */
  readonly line: number
  /** `""` where the page says none. */
  readonly language: string
  /** What the fence says behind the language. */
  readonly info: string
  readonly code: string
}

/** The blocks of a text. A block in a list is indented, which is no part of its code. */
export const fencesIn = (page: string, text: string): ReadonlyArray<Fence> => {
  const found: Array<Fence> = []
  let open:
    | { readonly indent: string; readonly line: number; readonly language: string; readonly info: string }
    | undefined
  let code: Array<string> = []
  for (const [index, line] of text.split("\n").entries()) {
    const [, indent = "", language = "", info = ""] = /^( *)```(\S*) *(.*)$/.exec(line) ?? []
    const isFence = /^ *```/.test(line)
    if (open === undefined) {
      if (isFence) open = { indent, line: index + 1, language, info }
    } else if (isFence) {
      const { indent: _, ...rest } = open
      found.push({ page, ...rest, code: code.map(line => `${line}\n`).join("") })
      open = undefined
      code = []
    } else code.push(line.startsWith(open.indent) ? line.slice(open.indent.length) : line)
  }
  if (open !== undefined) throw new Error(`${page}: the block of line ${open.line} has no end`)
  return found
}

/** The blocks of a page. */
export const fencesOf = (page: string): ReadonlyArray<Fence> => fencesIn(page, read(page))

/** The examples of a page in TypeScript, without their imports. */
export const programsOf = (page: string): ReadonlyArray<string> =>
  fencesOf(page)
    .filter(({ language }) => language === "ts")
    .map(({ code }) => code.replace(/^import .*\n/gm, ""))

/** Runs an example, and returns what it has named `results`. */
export const evaluate = async (
  code: string,
  scope: object,
  results: ReadonlyArray<string> = []
): Promise<ReadonlyArray<unknown>> => {
  const source = `const run = async () => {${code}\nreturn [${results.join(", ")}]}`
  const { code: script } = transformSync(source, { loader: "ts" })
  const run: () => Promise<ReadonlyArray<unknown>> = new Function(...Object.keys(scope), `${script}; return run`)(
    ...Object.values(scope)
  )
  return run()
}
