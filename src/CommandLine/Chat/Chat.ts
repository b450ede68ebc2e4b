/** A conversation with an agent: connects to its session, sends lines of input to it and prints its events. */

import {
  Clock,
  Data,
  Deferred,
  Duration,
  Effect,
  Either,
  Option,
  type Redacted,
  Runtime,
  Schema,
  type Scope,
  Stream
} from "effect"
import * as Client from "../../Client/Effect/Client.ts"
import { Event } from "../../Gateway/Protocol.ts"
import type * as Output from "../Terminal/Output.ts"
import { clean } from "../Terminal/Text.ts"
import * as Commands from "./Commands.ts"
import * as Screen from "./Screen.ts"
import { State } from "./State.ts"
import { type Display, type Fatal, makeDisplay, Terminal } from "./Terminal.ts"

/** The session, the gateway, and the form of the output. */
export interface Options {
  /** The address of the service. */
  readonly url: string
  /** `""` if there is none. */
  readonly token: Redacted.Redacted
  /** The session to continue; default a new one. */
  readonly session: Option.Option<string>
  readonly agentType: string
  /** How long to try to reconnect; default 10 minutes. */
  readonly giveUpAfter?: Duration.DurationInput
  /** How long an answer may take, from the last event that was received; default a minute. */
  readonly timeout?: Duration.DurationInput
  /**
   * Whether to print records for programs: each update of the session, and each answer to a command, as a line of JSON.
   * Text without a record, such as a failure, is written to standard error then.
   */
  readonly json?: boolean
}

/** How long to wait for missed events before the first line is read. */
const catchUpTimeout = "30 seconds"

const trimmed = "· events that are no longer kept are missing here"
const reset = "· the history was reset; this is the new one"

/** A newer gateway may send other events, which are not shown. */
const isKnown = Schema.is(Event)

/** Notes lost and restored connections. Completes `ended` if reconnecting takes too long. */
const connectionNotes = (options: Options, { note, paint }: Display, ended: Deferred.Deferred<never, Fatal>) =>
  Effect.gen(function* () {
    const runFork = Runtime.runFork(yield* Effect.runtime())
    const clock = yield* Clock.clockWith(Effect.succeed)
    const giveUpAfter = Duration.toMillis(options.giveUpAfter ?? "10 minutes")
    let lostAt: number | undefined
    let isConnected = false
    return (status: Client.ConnectionStatus) => {
      const now = Number(clock.unsafeCurrentTimeNanos()) / 1e6
      if (status.type === "connected") {
        if (lostAt !== undefined) runFork(note(paint.yellow("· connected again")))
        lostAt = undefined
        isConnected = true
        return
      }
      if (!isConnected) return
      const { message } = status.error
      if (lostAt === undefined) runFork(note(paint.yellow(`· ${clean(message)}; connecting again`)))
      lostAt ??= now
      if (now - lostAt >= giveUpAfter) {
        Deferred.unsafeDone(ended, new Client.ConnectionFailed({ message, isTimeout: true }))
      }
    }
  })

/** Connects to the gateway until the scope closes, and creates the session unless it is continued. */
const open = (
  options: Options,
  display: Display,
  ended: Deferred.Deferred<never, Fatal>
): Effect.Effect<Commands.Session, Client.SessionsError, Scope.Scope> =>
  Effect.gen(function* () {
    const { timeout, token, url } = options
    const sessions = yield* Client.makeSessions({
      baseUrl: url,
      token,
      ...(timeout !== undefined && { timeout }),
      onStatus: yield* connectionNotes(options, display, ended)
    })
    yield* sessions.connect
    const id = Option.isSome(options.session) ? options.session.value : (yield* sessions.create(options.agentType)).id
    return { id, sessions }
  })

/** Shows the events of a session until the scope closes. Returns once the existing ones are shown, or after a timeout. */
const follow = (
  { id, sessions }: Commands.Session,
  state: State,
  { draw, line, paint, record }: Display,
  ended: Deferred.Deferred<never, Fatal>
): Effect.Effect<void, Fatal, Scope.Scope> =>
  Effect.gen(function* () {
    const synced = yield* Deferred.make<void>()
    const onEvent = (event: typeof Event.Type) =>
      Effect.suspend(() => {
        const isShown = state.apply(event)
        return Effect.tap(isShown ? draw(screen => Screen.draw(screen, event, paint)) : Effect.void, () =>
          Effect.sync(() => state.notify())
        )
      })
    const onUpdate = (update: Client.SessionUpdate): Effect.Effect<void> => {
      switch (update.type) {
        case "event":
          return isKnown(update.event) ? onEvent(update.event) : Effect.void
        case "conversation":
          return Effect.void
        case "synced":
          return Effect.asVoid(Deferred.succeed(synced, undefined))
        case "reset":
          return line(paint.yellow(reset))
        case "trimmed":
          return update.after === 0 ? Effect.void : line(paint.yellow(trimmed))
      }
    }
    yield* sessions.subscribe(id).pipe(
      Stream.runForEach(update => Effect.zipRight(record(update), onUpdate(update))),
      Effect.onError(cause => Deferred.failCause(ended, cause)),
      Effect.forkScoped
    )
    yield* Effect.raceFirst(Effect.timeoutOption(Deferred.await(synced), catchUpTimeout), Deferred.await(ended))
  })

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
  display: Display
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
  display: Display
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
    const ended = yield* Deferred.make<never, Fatal>()
    const display = yield* makeDisplay(options.json === true, state, ended)
    const session = yield* open(options, display, ended)
    yield* display.line(display.paint.dim(`· session ${session.id}; :help lists the commands`))
    yield* follow(session, state, display, ended)
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
