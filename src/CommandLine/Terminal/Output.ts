/** Standard output of a command. */
import { writeFileSync } from "node:fs"
import { Socket } from "node:net"
import { Context, Data, Effect, Layer } from "effect"
import type { CommandFailed } from "../CommandFailed.ts"
import { stringify } from "../ExactJson.ts"
import * as OutputFailure from "./OutputFailure.ts"
import { clean, cleanJson, coloured, type Paint, plain } from "./Text.ts"

/** The reader of standard output has gone, as `head` does. The command ends with success: nobody wants more. */
export class OutputClosed extends Data.TaggedError("OutputClosed") {}

/** Why text cannot be written: the reader has gone, or the disk is full. */
export type WriteError = OutputClosed | CommandFailed

export class Output extends Context.Tag("causeway/CommandLine/Output")<
  Output,
  {
    /** Whether standard output is a terminal; otherwise it is a file or a pipe, for programs. */
    readonly isTerminal: boolean
    /** The width of the terminal. */
    readonly cells: () => number
    readonly paint: Paint
    /** Writes text, and waits until the system has taken it. */
    readonly write: (text: string) => Effect.Effect<void, WriteError>
    /** Writes a line for the user on standard error. The line may quote what is not harmless for a terminal. */
    readonly note: (text: string) => Effect.Effect<void>
  }
>() {}

const failure = (error: NodeJS.ErrnoException): WriteError => OutputFailure.of(error) ?? new OutputClosed()

/** Writes to a pipe or a terminal. */
const toSocket = (stdout: Socket, text: string): Effect.Effect<void, WriteError> =>
  Effect.async(resume => {
    stdout.write(text, error => resume(error ? Effect.fail(failure(error)) : Effect.void))
  })

/** Writes all of the text to a file. The stream of Node is content with the part that the disk has room for. */
const toFile = (fd: number, text: string): Effect.Effect<void, WriteError> =>
  Effect.try({ try: () => writeFileSync(fd, text), catch: error => failure(error as NodeJS.ErrnoException) })

/** The output of the process. */
export const layer: Layer.Layer<Output> = Layer.sync(Output, () => {
  const { stdout } = process
  const isTerminal = stdout.isTTY === true
  const isFile: boolean = !(stdout instanceof Socket)
  return {
    isTerminal,
    cells: () => (stdout.columns > 0 ? stdout.columns : 80),
    paint: isTerminal && stdout.hasColors() ? coloured : plain,
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

/** Writes JSON: to a file or a pipe as it is, to a terminal with escapes for what would change the terminal. */
export const writeJson = (text: string): Effect.Effect<void, WriteError, Output> =>
  Effect.flatMap(Output, ({ isTerminal, write }) => write(isTerminal ? cleanJson(text) : text))

/** Writes a record as a line of JSON, with stored values as they are. */
export const record = (value: unknown): Effect.Effect<void, WriteError, Output> => writeJson(`${stringify(value)}\n`)

/** Whether a command prints JSON: where it is asked to, and for programs. */
export const isJson = (wanted: boolean): Effect.Effect<boolean, never, Output> =>
  Effect.map(Output, ({ isTerminal }) => wanted || !isTerminal)
