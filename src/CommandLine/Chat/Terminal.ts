/** The terminal of a conversation, and its output: text for people, or records for programs. */
import * as readline from "node:readline"
import { Context, Deferred, Effect, Exit, Layer, Mailbox, Option } from "effect"
import { drained } from "../../base/Time/EventLoop.ts"
import type * as Client from "../../Client/Effect/Client.ts"
import * as Output from "../Terminal/Output.ts"
import { type Paint, plain } from "../Terminal/Text.ts"
import * as Screen from "./Screen.ts"
import type { State } from "./State.ts"

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

/** Why a conversation must end. */
export type Fatal = Client.SessionsError | Output.WriteError

/** The output of one conversation. */
export interface Display {
  readonly paint: Paint
  /** Draws on the screen, then shows the prompt. Programs get nothing. */
  readonly draw: (draw: (screen: Screen.Screen) => Screen.Drawn) => Effect.Effect<void>
  /** Writes a line for people; programs get the same as a record. */
  readonly line: (text: string) => Effect.Effect<void>
  /** Writes a line that has no record; for programs to standard error. */
  readonly note: (text: string) => Effect.Effect<void>
  /** Writes a record for programs. If that fails, the conversation ends. */
  readonly record: (value: unknown) => Effect.Effect<void>
  /** Writes and counts a failure. */
  readonly fail: (message: string) => Effect.Effect<void>
}

/** The output of a conversation. A failure to write it completes `ended`. */
export const makeDisplay = (
  isJson: boolean,
  state: State,
  ended: Deferred.Deferred<never, Fatal>
): Effect.Effect<Display, never, Terminal | Output.Output> =>
  Effect.gen(function* () {
    const terminal = yield* Terminal
    const output = yield* Output.Output
    const paint = isJson ? plain : output.paint
    /** Output is written in order. */
    const lock = yield* Effect.makeSemaphore(1)
    let screen = Screen.empty

    const draw: Display["draw"] = draw =>
      Effect.suspend(() => {
        if (isJson) return Effect.void
        const [next, text] = draw(screen)
        screen = next
        const showPrompt = Effect.suspend(() => {
          const { prompt } = state
          return prompt === undefined || !screen.isAtLineStart ? Effect.void : terminal.prompt(prompt)
        })
        return Effect.zipRight(terminal.write(text), showPrompt)
      }).pipe(lock.withPermits(1))

    const line = (text: string) => draw(screen => Screen.drawLine(screen, text))

    const note = (text: string) => (isJson ? terminal.note(text) : line(text))

    const record = (value: unknown): Effect.Effect<void> =>
      isJson
        ? Output.record(value).pipe(
            Effect.provideService(Output.Output, output),
            Effect.catchAll(error => Effect.zipRight(Deferred.fail(ended, error), Effect.never))
          )
        : Effect.void

    const fail = (message: string) =>
      Effect.suspend(() => {
        state.failures++
        return note(paint.red(`✗ ${message}`))
      })

    return { paint, draw, line, note, record, fail }
  })
