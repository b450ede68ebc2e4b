/** The output of a conversation: text for people, or records for programs. */
import { Deferred, Effect } from "effect"
import type * as Client from "../../Client/Effect/Client.ts"
import * as Output from "../Terminal/Output.ts"
import { type Paint, plain } from "../Terminal/Text.ts"
import * as Screen from "./Screen.ts"
import type { State } from "./State.ts"
import { Terminal } from "./Terminal.ts"

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
export const make = (
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
