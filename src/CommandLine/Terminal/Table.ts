/** Tables for a terminal. */
import { stringWidth } from "../Library.ts"
import { clean, cleanName } from "./Text.ts"

/** A column. */
export interface Column {
  readonly title: string
  readonly align?: "left" | "right"
  /** Whether it is narrowed, to 8 cells at least, if the terminal is too narrow. */
  readonly shrinks?: boolean
}

/** The width of a terminal in cells. Some pseudo-terminals have no size, or report 0. */
export const widthOf = (columns: number | undefined): number => (columns !== undefined && columns > 0 ? columns : 80)

const gap = "  "
const narrowest = 8

const segmenter = new Intl.Segmenter()

/** Truncates a text to `cells` cells of a terminal. A truncated text ends with `…`. */
export const truncate = (text: string, cells: number): string => {
  if (stringWidth(text) <= cells) return text
  let shown = ""
  let width = 0
  for (const { segment } of segmenter.segment(text)) {
    width += stringWidth(segment)
    if (width > cells - 1) break
    shown += segment
  }
  return cells < 1 ? "" : `${shown}…`
}

const pad = (text: string, cells: number, align: Column["align"] = "left"): string => {
  const space = " ".repeat(Math.max(0, cells - stringWidth(text)))
  return align === "left" ? text + space : space + text
}

/** The widths of columns. Columns that may shrink do so until the table fits into `cells`, or are at their minimum. */
const widthsOf = (
  columns: ReadonlyArray<Column>,
  rows: ReadonlyArray<ReadonlyArray<string>>,
  cells: number
): ReadonlyArray<number> => {
  const widths = columns.map(({ title }, index) =>
    Math.max(stringWidth(title), ...rows.map(row => stringWidth(row[index] ?? "")))
  )
  const total = () => widths.reduce((sum, width) => sum + width, gap.length * (columns.length - 1))
  for (;;) {
    const excess = total() - cells
    const widest = columns
      .map(({ shrinks = false }, index) => (shrinks ? index : -1))
      .filter(index => index >= 0 && (widths[index] ?? 0) > narrowest)
      .sort((a, b) => (widths[b] ?? 0) - (widths[a] ?? 0))
    const [first, second] = widest
    if (excess <= 0 || first === undefined) return widths
    // The widest one shrinks to the width of the next one, then both shrink.
    const floor = Math.max(narrowest, second === undefined ? narrowest : (widths[second] ?? 0) - 1)
    widths[first] = Math.max(floor, (widths[first] ?? 0) - excess)
  }
}

/** A table with a line of titles. Columns that may shrink are narrowed to fit into `cells`. */
export const table = (
  columns: ReadonlyArray<Column>,
  rows: ReadonlyArray<ReadonlyArray<string>>,
  cells: number,
  hasTitles = true
): string => {
  const shown = rows.map(row => row.map(cleanName))
  const widths = widthsOf(columns, shown, cells)
  const print = (row: ReadonlyArray<string>) =>
    columns
      .map(({ align }, index) => {
        const width = widths[index] ?? 0
        return pad(truncate(row[index] ?? "", width), width, align)
      })
      .join(gap)
      .trimEnd()
  return [...(hasTitles ? [columns.map(({ title }) => title)] : []), ...shown].map(row => `${print(row)}\n`).join("")
}

/** Names with their values, one a line. */
export const list = (rows: ReadonlyArray<readonly [name: string, text: string]>): string => {
  const width = Math.max(...rows.map(([name]) => stringWidth(name)))
  return rows.map(([name, text]) => `${pad(name, width)}${gap}${clean(text)}\n`).join("")
}
