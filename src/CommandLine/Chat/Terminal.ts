/** The terminal of a conversation. */
import * as readline from "node:readline"
import { Context, Effect, Exit, Layer, Mailbox, Option } from "effect"
import { drained } from "../../base/EventLoop.ts"

/** Input from the keyboard or a file. */
export type Input = { readonly is: "line"; readonly text: string } | { readonly is: "interrupt" }

/** Standard input, and standard output for people. */
export class Terminal extends Context.Tag("causeway/chat/Terminal")<
  Terminal,
  {
    /** Whether input is typed; otherwise it comes from a file or a pipe. */
    readonly isInteractive: boolean
    /** The next input; `None` at the end. */
    readonly next: Effect.Effect<Option.Option<Input>>
    /** Writes text of the conversation to a terminal, and waits for it if it is slow. */
    readonly write: (text: string) => Effect.Effect<void>
    /** Writes a line on standard error. */
    readonly note: (text: string) => Effect.Effect<void>
    /** Shows a prompt in the current line until the next output. */
    readonly prompt: (text: string) => Effect.Effect<void>
  }
>() {}

/** The number of queued lines at which reading pauses. */
const maxQueued = 64

/** Standard input and output. */
export const layer: Layer.Layer<Terminal> = Layer.scoped(
  Terminal,
  Effect.gen(function* () {
    const { stdin, stdout, stderr } = process
    const isInteractive = stdin.isTTY && stdout.isTTY
    const mailbox = yield* Mailbox.make<Input>()
    let isOpen = true
    const lines = yield* Effect.acquireRelease(
      Effect.sync(() => {
        const lines = readline.createInterface({
          input: stdin,
          crlfDelay: Number.POSITIVE_INFINITY,
          ...(isInteractive ? { output: stdout, terminal: true } : { terminal: false })
        })
        const queued = () => Option.getOrElse(mailbox.unsafeSize(), () => 0)
        lines.on("line", text => {
          mailbox.unsafeOffer({ is: "line", text })
          if (!isInteractive && isOpen && queued() >= maxQueued) lines.pause()
        })
        lines.on("SIGINT", () => mailbox.unsafeOffer({ is: "interrupt" }))
        lines.on("close", () => {
          isOpen = false
          mailbox.unsafeDone(Exit.void)
        })
        return lines
      }),
      lines => Effect.sync(() => lines.close())
    )
    let isPrompted = false
    /** Removes the prompt and the typed text from the screen. The next prompt shows both again. */
    const clear = (): void => {
      if (!isPrompted) return
      readline.cursorTo(stdout, 0)
      readline.clearLine(stdout, 0)
      isPrompted = false
    }
    return {
      isInteractive,
      next: Effect.suspend(() => {
        // Lines may be queued after the end of input, and a closed reader cannot be resumed.
        if (isOpen) lines.resume()
        return Effect.option(mailbox.take)
      }),
      write: text =>
        Effect.suspend(() => {
          if (text === "" || stdout.destroyed) return Effect.void
          clear()
          return stdout.write(text) ? Effect.void : drained(stdout)
        }),
      note: text =>
        Effect.sync(() => {
          clear()
          stderr.write(`${text}\n`)
        }),
      prompt: text =>
        Effect.sync(() => {
          if (!isInteractive || !isOpen) return
          lines.setPrompt(text)
          lines.prompt(true)
          isPrompted = true
        })
    }
  })
)
