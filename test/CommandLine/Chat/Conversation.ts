import { Effect, Exit, Layer, Option, Random, Redacted } from "effect"
import * as Chat from "../../../src/CommandLine/Chat/Chat.ts"
import { type Input, Terminal } from "../../../src/CommandLine/Chat/Terminal.ts"
import * as Output from "../../../src/CommandLine/Terminal/Output.ts"
import { plain } from "../../../src/CommandLine/Terminal/Text.ts"
import { Changes } from "../../../src/Simulator/Changes.ts"

/** The outcome of a conversation. */
export interface Held {
  /** What a person sees. */
  readonly output: string
  /** What a program reads. */
  readonly records: string
  readonly exit: Exit.Exit<void, Effect.Effect.Error<ReturnType<typeof Chat.run>>>
}

/** A line, another input, or a text to wait for before the next. */
export type Typed = string | Input | { readonly shown: string }

const defaults: Omit<Chat.Options, "url"> = {
  token: Redacted.make(""),
  session: Option.none(),
  agentType: "assistant"
}

/** Holds a conversation by these lines, without colors. A person may interrupt and be prompted. */
export const hold = (
  options: Partial<Chat.Options> & Pick<Chat.Options, "url">,
  lines: ReadonlyArray<Typed>,
  isInteractive = false,
  /** Whether the reader of records has closed the pipe. */
  isAbandoned = false
): Effect.Effect<Held> =>
  Effect.gen(function* () {
    const changes = new Changes()
    let output = ""
    let records = ""
    let next = 0
    const input: Effect.Effect<Option.Option<Input>> = Effect.suspend(() => {
      const typed = lines[next++]
      if (typed === undefined) return Effect.succeed(Option.none())
      if (typeof typed === "string") return Effect.succeed(Option.some({ is: "line", text: typed }))
      if ("is" in typed) return Effect.succeed(Option.some(typed))
      const isShown = () => ((output + records).includes(typed.shown) ? Option.some(undefined) : Option.none())
      return Effect.zipRight(changes.until(isShown), input)
    })
    const write = (text: string) =>
      Effect.sync(() => {
        output += text
        changes.notify()
      })
    const standardOutput = Layer.succeed(Output.Output, {
      isTerminal: false,
      cells: () => 80,
      paint: plain,
      write: text =>
        isAbandoned
          ? new Output.OutputClosed()
          : Effect.sync(() => {
              records += text
              changes.notify()
            }),
      note: () => Effect.dieMessage("A conversation writes no note there")
    })
    const terminal = Layer.succeed(Terminal, {
      isInteractive,
      next: input,
      write,
      note: text => write(`${text}\n`),
      prompt: () => Effect.void
    })
    // Reconnects without a pause.
    const chat = Effect.withRandom(Chat.run({ ...defaults, ...options }), Random.fixed([0]))
    const exit = yield* Effect.exit(Effect.provide(chat, Layer.merge(terminal, standardOutput)))
    return { output, records, exit }
  })

/** Why a conversation failed. */
export const failureOf = ({ exit }: Held): string | undefined =>
  Exit.isFailure(exit) && exit.cause._tag === "Fail" && exit.cause.error._tag === "ChatFailed"
    ? exit.cause.error.message
    : undefined
