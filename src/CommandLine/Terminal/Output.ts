/** Standard output of a command. */
import { writeFileSync } from "node:fs"
import { Socket } from "node:net"
import { Context, Data, Effect, Layer } from "effect"
import { stringify } from "../../base/Json/ExactJson.ts"
import { type CommandFailed, outputFailed } from "../CommandFailed.ts"
import { widthOf } from "./Table.ts"
import { clean, cleanJson, colored, type Paint, plain } from "./Text.ts"

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

/** The output of this process. */
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

/** Writes text. */
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
