/** Parts of Markdown pages that scripts write. */

const row = (cells: ReadonlyArray<string>): string =>
  `| ${cells.map(cell => cell.replaceAll("|", "\\|").replaceAll("\n", " ")).join(" | ")} |`

export const table = (head: ReadonlyArray<string>, rows: ReadonlyArray<ReadonlyArray<string>>): string =>
  [head, head.map(() => "---"), ...rows].map(row).join("\n")

/** The page with the new text between the comments `<!-- name -->` and `<!-- /name -->`. */
export const replaceSection = (page: string, name: string, text: string): string => {
  const [begin, end] = [`<!-- ${name} -->`, `<!-- /${name} -->`]
  const [head, rest = ""] = page.split(begin)
  return `${head}${begin}\n${text}\n${end}${rest.split(end)[1] ?? "\n"}`
}
