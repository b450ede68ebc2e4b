/**
 * Writes the table of variables in docs/reference/configuration.md. With `--check` it only checks whether it is up to
 * date.
 */
import { readFileSync, writeFileSync } from "node:fs"
import { help } from "../../src/app/Serve.ts"
import * as Setting from "../../src/base/Setting.ts"
import { replaceSection, table } from "./Markdown.ts"

const page = new URL("../../docs/reference/configuration.md", import.meta.url)

const variables = (): string => {
  // Declares the settings.
  help()
  return table(
    ["variable", "default", "meaning"],
    Setting.all().map(({ name, description, default: shown }) => [
      `\`${name}\``,
      shown === "" ? "" : `\`${shown}\``,
      description
    ])
  )
}

/** The current page, and the generated one. */
export const pages = (): { readonly current: string; readonly wanted: string } => {
  const current = readFileSync(page, "utf8")
  return { current, wanted: replaceSection(current, "variables", variables()) }
}

if (process.argv[1] === import.meta.filename) {
  const { current, wanted } = pages()
  if (process.argv.includes("--check")) process.exitCode = current === wanted ? 0 : 1
  else writeFileSync(page, wanted)
}
