import * as readline from "node:readline"
import { Effect, type Option } from "effect"

/**
 * Asks a question on standard error, and takes `y` or `yes` for agreement; the end of input is none. None where standard
 * input or standard error is no terminal, so that nobody can be asked.
 */
export const confirm = (question: string): Effect.Effect<Option.Option<boolean>> =>
  Effect.async(resume => {
    const { stderr, stdin } = process
    if (!stdin.isTTY || !stderr.isTTY) {
      resume(Effect.succeedNone)
      return
    }
    // The terminal itself edits the line, so that Ctrl-C is a signal as everywhere.
    const lines = readline.createInterface({ input: stdin, terminal: false })
    let isAgreed = false
    lines.once("line", line => {
      isAgreed = /^y(?:es)?$/i.test(line.trim())
      lines.close()
    })
    lines.once("close", () => resume(Effect.succeedSome(isAgreed)))
    stderr.write(`${question} [y/N] `)
    return Effect.sync(() => lines.close())
  })
