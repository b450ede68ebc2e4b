/** Standard output of a command. */
import { Context, Data, Effect, Layer } from "effect"
import { stringify } from "./ExactJson.ts"
import { cleanJson, coloured, type Paint, plain } from "./Text.ts"

/** The reader of standard output has gone, as `head` does. The command ends with success: nobody wants more. */
export class OutputClosed extends Data.TaggedError("OutputClosed") {}

export class Output extends Context.Tag("causeway/CommandLine/Output")<
  Output,
  {
    /** Whether standard output is a terminal; otherwise it is a file or a pipe, for programs. */
    readonly isTerminal: boolean
    /** The width of the terminal. */
    readonly cells: () => number
    readonly paint: Paint
    /** Writes text, and waits until the system has taken it. */
    readonly write: (text: string) => Effect.Effect<void, OutputClosed>
    /** Writes a line for the user on standard error. */
    readonly note: (text: string) => Effect.Effect<void>
  }
>() {}

/** The output of the process. */
export const layer: Layer.Layer<Output> = Layer.sync(Output, () => {
  const { stdout } = process
  const isTerminal = stdout.isTTY === true
  return {
    isTerminal,
    cells: () => (stdout.columns > 0 ? stdout.columns : 80),
    paint: isTerminal && stdout.hasColors() ? coloured : plain,
    write: text =>
      Effect.async(resume => {
        stdout.write(text, error => resume(error ? Effect.fail(new OutputClosed()) : Effect.void))
      }),
    note: text =>
      Effect.sync(() => {
        process.stderr.write(`${text}\n`)
      })
  }
})

/** Writes text. */
export const write = (text: string): Effect.Effect<void, OutputClosed, Output> =>
  Effect.flatMap(Output, output => output.write(text))

/** Writes JSON: to a file or a pipe as it is, to a terminal with escapes for what would change the terminal. */
export const writeJson = (text: string): Effect.Effect<void, OutputClosed, Output> =>
  Effect.flatMap(Output, ({ isTerminal, write }) => write(isTerminal ? cleanJson(text) : text))

/** Writes a record as a line of JSON, with stored values as they are. */
export const record = (value: unknown): Effect.Effect<void, OutputClosed, Output> => writeJson(`${stringify(value)}\n`)

/** Whether a command prints JSON: where it is asked to, and for programs. */
export const isJson = (wanted: boolean): Effect.Effect<boolean, never, Output> =>
  Effect.map(Output, ({ isTerminal }) => wanted || !isTerminal)
