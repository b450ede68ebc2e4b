import * as readline from "node:readline"
import { Effect, type Option } from "effect"

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
