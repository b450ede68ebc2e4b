/**
 * Writes the table of variables in docs/reference/configuration.md. With `--check` it only checks whether it is up to
 * date.
 */
import { readFileSync, writeFileSync } from "node:fs"
import { all, type Variable } from "../../src/base/Setting.ts"
import { replaceSection, table } from "./Markdown.ts"

const page = new URL("../../docs/reference/configuration.md", import.meta.url)

/** What is allowed without what each row would repeat. */
const briefly = (allowed: string): string =>
  allowed.replace(/^a whole number from /, "").replace(/ such as 7 days, 12 hours or 30 seconds$/, "")

const rows = (variables: ReadonlyArray<Variable>): string =>
  table(
    ["variable", "default", "meaning", "allowed"],
    variables.map(({ name, description, allowed, default: shown }) => [
      `\`${name}\``,
      shown === "" ? "" : `\`${shown}\``,
      description,
      briefly(allowed)
    ])
  )

/** The current page, and the one with these variables. */
export const pages = (variables: ReadonlyArray<Variable>): { readonly current: string; readonly wanted: string } => {
  const current = readFileSync(page, "utf8")
  return { current, wanted: replaceSection(current, "variables", rows(variables)) }
}

if (process.argv[1] === import.meta.filename) {
  const { help } = await import("../../src/app/Serve.ts")
  // Declares the settings.
  help()
  const { current, wanted } = pages(all())
  if (process.argv.includes("--check")) process.exitCode = current === wanted ? 0 : 1
  else writeFileSync(page, wanted)
}
