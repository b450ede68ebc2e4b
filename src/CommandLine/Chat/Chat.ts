/** A conversation with an agent: sends lines of input to it and prints its events. */
import { Data, Deferred, Effect, Either, Option, Schema, type Scope } from "effect"
import type * as Client from "../../Client/Effect/Client.ts"
import type * as Output from "../Terminal/Output.ts"
import * as Commands from "./Commands.ts"
import * as Display from "./Display.ts"
import * as Screen from "./Screen.ts"
import * as Session from "./Session.ts"
import { State } from "./State.ts"
import { Terminal } from "./Terminal.ts"

/** The session, the gateway, and the form of the output. */
export interface Options extends Session.Options {
  /**
   * Whether to print records for programs: each update of the session, and each answer to a command, as a line of JSON.
   * Text without a record, such as a failure, is written to standard error then.
   */
  readonly json?: boolean
}

/** The conversation failed, or part of it did. */
export class ChatFailed extends Data.TaggedError("ChatFailed")<{
  readonly message: string
  /** The failed call that ended the conversation, if one did. */
  readonly cause?: Client.SessionsError
}> {}

/** The user ended the conversation by a signal. */
export class Interrupted extends Schema.TaggedError<Interrupted>()("Interrupted", {}) {}

/** Executes lines of a file or a pipe one after the other, each after the turn of the one before has ended. */
const runLines = (
  execute: Commands.Execute,
  state: State,
  display: Display.Display
): Effect.Effect<void, ChatFailed, Terminal> =>
  Effect.gen(function* () {
    const terminal = yield* Terminal
    for (;;) {
      const input = yield* terminal.next
      if (Option.isNone(input)) break
      if (input.value.is !== "line") continue
      const command = Commands.parse(input.value.text)
      if (Either.isLeft(command)) {
        yield* display.fail(command.left)
        continue
      }
      if (command.right.do === "quit") break
      const turnId = yield* execute(command.right)
      if (turnId !== undefined) yield* state.settled(turnId)
    }
    if (state.requests.open.length > 0) {
      return yield* new ChatFailed({ message: "The input ended before the agent was answered" })
    }
    const { failures } = state
    if (failures > 0) {
      return yield* new ChatFailed({ message: failures === 1 ? "One thing failed" : `${failures} things failed` })
    }
  })

/** Reads lines as they are typed, and executes up to 16 of them concurrently, started in order. */
const runTyped = (
  execute: Commands.Execute,
  state: State,
  display: Display.Display
): Effect.Effect<void, Interrupted, Terminal | Scope.Scope> =>
  Effect.gen(function* () {
    const terminal = yield* Terminal
    const permits = yield* Effect.makeSemaphore(16)
    for (;;) {
      state.isReading = true
      yield* display.draw(screen => [screen, ""])
      const input = yield* terminal.next
      state.isReading = false
      if (Option.isNone(input)) return
      if (input.value.is === "interrupt") {
        if (state.requests.running.size === 0) return yield* new Interrupted()
        yield* Effect.forkScoped(execute({ do: "interrupt" }))
        continue
      }
      const command = Commands.parse(input.value.text)
      if (Either.isLeft(command)) {
        yield* display.note(command.left)
        continue
      }
      const { right } = command
      if (right.do === "quit") return
      yield* permits.take(1)
      yield* Effect.forkScoped(Effect.ensuring(execute(right), permits.release(1)))
    }
  })

const make = (options: Options) =>
  Effect.gen(function* () {
    const terminal = yield* Terminal
    const state = new State()
    const ended = yield* Deferred.make<never, Display.Fatal>()
    const display = yield* Display.make(options.json === true, state, ended)
    const session = yield* Session.open(options, display, ended)
    yield* display.line(display.paint.dim(`· session ${session.id}; :help lists the commands`))
    yield* Session.follow(session, state, display, ended)
    const execute = Commands.make(session, state, display)
    const conversation: Effect.Effect<void, ChatFailed | Interrupted, Terminal | Scope.Scope> = terminal.isInteractive
      ? runTyped(execute, state, display)
      : runLines(execute, state, display)
    yield* Effect.raceFirst(conversation, Deferred.await(ended)).pipe(
      Effect.ensuring(
        Effect.zipRight(
          display.draw(Screen.breakLine),
          terminal.isInteractive ? terminal.note(`Continue with --session ${session.id}`) : Effect.void
        )
      )
    )
  })

/** Runs a conversation until the input or the user ends it. */
export const run = (
  options: Options
): Effect.Effect<void, ChatFailed | Interrupted | Output.WriteError, Terminal | Output.Output> =>
  Effect.scoped(make(options)).pipe(
    Effect.mapError(error => {
      switch (error._tag) {
        case "ChatFailed":
        case "Interrupted":
        case "OutputClosed":
        case "CommandFailed":
          return error
        default:
          return new ChatFailed({
            message: error._tag === "RequestRefused" ? error.message : `${options.url}: ${error.message}`,
            cause: error
          })
      }
    })
  )
