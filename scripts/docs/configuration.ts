/**
 * Writes the table of variables into docs/configuration.md from the settings themselves. With `--check` it only
 * says whether the page is up to date.
 */
import { readFileSync, writeFileSync } from "node:fs"
import { help } from "../../src/Cli.ts"
import * as Setting from "../../src/Setting.ts"

const page = new URL("../../docs/configuration.md", import.meta.url)
const begin = "<!-- variables -->"
const end = "<!-- /variables -->"

const cell = (text: string): string => text.replaceAll("|", "\\|")

/** The variables as a Markdown table. */
export const table = (): string => {
  help()
  const rows = Setting.all().map(
    ({ name, description, allowed, default: shown }) =>
      `| \`${name}\` | ${shown === "" ? "" : `\`${cell(shown)}\``} | ${cell(description)} | ${cell(allowed)} |`
  )
  return ["| variable | default | meaning | allowed |", "|---|---|---|---|", ...rows].join("\n")
}

/** The page as it is, and as it should be. */
export const pages = (): { readonly current: string; readonly wanted: string } => {
  const current = readFileSync(page, "utf8")
  const [head, rest = ""] = current.split(begin)
  const tail = rest.split(end)[1] ?? "\n"
  return { current, wanted: `${head}${begin}\n${table()}\n${end}${tail}` }
}

if (process.argv[1] === import.meta.filename) {
  const { current, wanted } = pages()
  if (process.argv.includes("--check")) process.exitCode = current === wanted ? 0 : 1
  else writeFileSync(page, wanted)
}
