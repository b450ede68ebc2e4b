/** Standard output of a command, and its tables. */
import { writeFileSync } from "node:fs"
import { Socket } from "node:net"
import { Context, Data, Effect, Layer } from "effect"
import { stringify } from "../../base/Json/ExactJson.ts"
import { type CommandFailed, outputFailed } from "../CommandFailed.ts"
import { stringWidth } from "../Library.ts"
import { clean, cleanJson, cleanName, colored, type Paint, plain } from "./Text.ts"

/** The reader of standard output has closed it, like `head`. The command ends with success: no output is needed. */
export class OutputClosed extends Data.TaggedError("OutputClosed") {}

/** Why text cannot be written: the reader has closed the pipe, or the disk is full. */
export type WriteError = OutputClosed | CommandFailed

/** Standard output and notes on standard error. */
export class Output extends Context.Tag("causeway/CommandLine/Output")<
  Output,
  {
    /** Whether standard output is a terminal; otherwise it is a file or a pipe and read by programs. */
    readonly isTerminal: boolean
    /** The width of the terminal in cells. */
    readonly cells: () => number
    readonly paint: Paint
    /** Writes text and waits until the system has accepted it. */
    readonly write: (text: string) => Effect.Effect<void, WriteError>
    /** Writes a line on standard error. It is sanitized, so it may quote untrusted text. */
    readonly note: (text: string) => Effect.Effect<void>
  }
>() {}

const failure = (error: NodeJS.ErrnoException): WriteError => outputFailed(error) ?? new OutputClosed()

/** Writes to a pipe or a terminal. */
const toSocket = (stdout: Socket, text: string): Effect.Effect<void, WriteError> =>
  Effect.async(resume => {
    stdout.write(text, error => resume(error ? Effect.fail(failure(error)) : Effect.void))
  })

/** Writes to a file. A stream of Node would report success after a part of the text if the disk is full. */
const toFile = (fd: number, text: string): Effect.Effect<void, WriteError> =>
  Effect.try({ try: () => writeFileSync(fd, text), catch: error => failure(error as NodeJS.ErrnoException) })

export const layer: Layer.Layer<Output> = Layer.sync(Output, () => {
  const { stdout } = process
  const isTerminal = stdout.isTTY === true
  const isFile: boolean = !(stdout instanceof Socket)
  return {
    isTerminal,
    cells: () => widthOf(stdout.columns),
    paint: isTerminal && stdout.hasColors() ? colored : plain,
    write: text => (isFile ? toFile(stdout.fd, text) : toSocket(stdout, text)),
    note: text =>
      Effect.sync(() => {
        process.stderr.write(`${clean(text)}\n`)
      })
  }
})

export const write = (text: string): Effect.Effect<void, WriteError, Output> =>
  Effect.flatMap(Output, output => output.write(text))

/** Writes JSON; to a terminal with escapes for control characters. */
export const writeJson = (text: string): Effect.Effect<void, WriteError, Output> =>
  Effect.flatMap(Output, ({ isTerminal, write }) => write(isTerminal ? cleanJson(text) : text))

/** Writes a record as a line of JSON. The text of stored values is preserved. */
export const record = (value: unknown): Effect.Effect<void, WriteError, Output> => writeJson(`${stringify(value)}\n`)

/** Whether a command prints JSON: with `--json`, and for programs. */
export const isJson = (wanted: boolean): Effect.Effect<boolean, never, Output> =>
  Effect.map(Output, ({ isTerminal }) => wanted || !isTerminal)

/** Writes the answer of a command: a record with `--json` and for programs, otherwise text. */
export const answer = (wanted: boolean, value: unknown, text: () => string): Effect.Effect<void, WriteError, Output> =>
  Effect.flatMap(isJson(wanted), isJson => (isJson ? record(value) : write(text())))

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
