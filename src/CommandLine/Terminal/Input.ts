/** Input of commands: whole files, standard input, and confirmations. */
import { readFile } from "node:fs/promises"
import * as readline from "node:readline"
import { Effect, type Option } from "effect"
import { messageOf } from "../../base/ErrorMessage.ts"
import { type CommandFailed, wrong } from "../CommandFailed.ts"
import { Output } from "./Output.ts"

/** Notes on a terminal that the command waits for the user. */
export const noteReading: Effect.Effect<void, never, Output> = Effect.flatMap(Output, ({ note }) =>
  process.stdin.isTTY ? note("Reading standard input; Ctrl-D ends it.") : Effect.void
)

/** The maximum number of bytes read from standard input. The service has its own limit for values. */
const maxBytes = 256 * 1024 * 1024

const bytesOf = async (path: string): Promise<Uint8Array> => {
  if (path !== "-") return readFile(path)
  const chunks: Array<Buffer> = []
  let bytes = 0
  for await (const chunk of process.stdin) {
    chunks.push(Buffer.from(chunk))
    bytes += chunk.length
    if (bytes > maxBytes) throw new Error(`it has more than ${maxBytes} bytes`)
  }
  return Buffer.concat(chunks)
}

const decoder = new TextDecoder("utf-8", { fatal: true })

/** The whole text of a file, or of standard input if the path is `-`. A byte order mark at its start is left out. */
export const contentOf = (path: string): Effect.Effect<string, CommandFailed, Output> => {
  const name = path === "-" ? "Standard input" : path
  const bytes = Effect.tryPromise({
    try: () => bytesOf(path),
    catch: error => wrong(`${name} cannot be read: ${messageOf(error)}`)
  })
  return (path === "-" ? Effect.zipRight(noteReading, bytes) : bytes).pipe(
    Effect.flatMap(bytes =>
      Effect.try({ try: () => decoder.decode(bytes), catch: () => wrong(`${name}: it is not UTF-8`) })
    )
  )
}

/**
 * Asks a question on standard error. `y` and `yes` confirm; anything else and the end of input do not. `None` if standard
 * input or standard error is not a terminal.
 */
export const confirm = (question: string): Effect.Effect<Option.Option<boolean>> =>
  Effect.async(resume => {
    const { stderr, stdin } = process
    if (!stdin.isTTY || !stderr.isTTY) {
      resume(Effect.succeedNone)
      return
    }
    // The terminal itself edits the line, so that Ctrl-C sends a signal.
    const lines = readline.createInterface({ input: stdin, terminal: false })
    let isConfirmed = false
    lines.once("line", line => {
      isConfirmed = /^y(?:es)?$/i.test(line.trim())
      lines.close()
    })
    lines.once("close", () => resume(Effect.succeedSome(isConfirmed)))
    stderr.write(`${question} [y/N] `)
    return Effect.sync(() => lines.close())
  })
