/** A conversation with an agent: sends lines to it, and prints its events. */
import { randomUUID } from "node:crypto"
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
import * as Client from "../../EffectClient/Client.ts"
import { Event } from "../../Gateway/Protocol.ts"
import { Changes } from "../../Simulator/Changes.ts"
import * as Output from "../Terminal/Output.ts"
import { clean, type Paint, plain } from "../Terminal/Text.ts"
import * as AnswerText from "./AnswerText.ts"
import * as Command from "./Command.ts"
import * as Requests from "./Requests.ts"
import * as Screen from "./Screen.ts"
import { Terminal } from "./Terminal.ts"

/** The session and the gateway. */
export interface Options {
  /** The address of the service. */
  readonly url: string
  /** `""` where there is none. */
  readonly token: Redacted.Redacted
  /** The session to continue; default a new one. */
  readonly session: Option.Option<string>
  readonly agentType: string
  /** How long to try to connect again; 10 minutes without it. */
  readonly giveUpAfter?: Duration.DurationInput
  /** How long an answer may take; a minute without it. */
  readonly timeout?: Duration.DurationInput
  /**
   * Whether to print records for programs: each update of the session, and each answer to a command, as a line of JSON.
   * What has no record, such as a failure, is then told on standard error.
   */
  readonly json?: boolean
}

/** The conversation failed, or part of it did. */
export class ChatFailed extends Data.TaggedError("ChatFailed")<{
  readonly message: string
  /** The failed call that has ended it, if one has. */
  readonly cause?: Client.SessionsError
}> {}

/** The user ended the conversation by a signal. */
export class Interrupted extends Schema.TaggedError<Interrupted>()("Interrupted", {}) {}

/** What happens to the connection and to the history. */
type Notice = { readonly is: "lost"; readonly reason: string } | { readonly is: "back" | "trimmed" | "reset" }

const notices = {
  back: "· connected again",
  trimmed: "· events that are no longer kept are missing here",
  reset: "· the history was reset; this is the new one"
} as const

const noticeText = (notice: Notice, { yellow }: Paint): string =>
  yellow(notice.is === "lost" ? `· ${clean(notice.reason)}; connecting again` : notices[notice.is])

/** How long missed events are waited for before the first line is read. */
const catchUpWithin = "30 seconds"

/** A newer gateway may send other events, which are not shown. */
const isKnown = Schema.is(Event)

/** Whether to show a prompt. */
type PromptState = "idle" | "busy"

const make = (options: Options) =>
  Effect.gen(function* () {
    const terminal = yield* Terminal
    const output = yield* Output.Output
    const isJson = options.json === true
    const paint = isJson ? plain : output.paint
    const changes = new Changes()
    /** Output is written in order. */
    const pen = yield* Effect.makeSemaphore(1)
    let screen = Screen.empty
    let state = Requests.nothing
    let promptState: PromptState = "busy"
    let failures = 0
    /** Messages of this client, which are on the screen already. */
    const own = new Set<string>()

    const isPromptWanted = () =>
      promptState === "idle" && screen.isAtLineStart && (state.running.size === 0 || state.open.length > 0)
    const promptText = () => (state.open.length > 0 ? "answer> " : "> ")

    /** Fails when there is no use in going on. */
    const ended = yield* Deferred.make<never, Client.SessionsError | Output.WriteError>()

    const put = (draw: (screen: Screen.Screen) => Screen.Drawn): Effect.Effect<void> =>
      Effect.suspend(() => {
        if (isJson) return Effect.void
        const [next, text] = draw(screen)
        screen = next
        const prompt = Effect.suspend(() => (isPromptWanted() ? terminal.prompt(promptText()) : Effect.void))
        return Effect.zipRight(terminal.write(text), prompt)
      }).pipe(pen.withPermits(1))

    /** Tells a person what programs learn from records. */
    const remark = (line: string) => put(screen => Screen.drawLine(screen, line))

    /** Tells what has no record. */
    const tell = (line: string) => (isJson ? terminal.complain(line) : remark(line))

    /** Prints a record for programs. Where it cannot be written, the conversation ends. */
    const record = (value: unknown): Effect.Effect<void> =>
      isJson
        ? Output.record(value).pipe(
            Effect.provideService(Output.Output, output),
            Effect.catchAll(error => Effect.zipRight(Deferred.fail(ended, error), Effect.never))
          )
        : Effect.void

    /** A failure that the exit code must show. */
    const fail = (message: string) =>
      Effect.suspend(() => {
        failures++
        return tell(paint.red(`✗ ${message}`))
      })

    const onEvent = (event: Client.SessionEvent) =>
      Effect.suspend(() => {
        state = Requests.advance(state, event)
        const isOwn = event.type === "turn_started" && own.delete(event.clientMessageId ?? "")
        return Effect.tap(isOwn ? Effect.void : put(screen => Screen.draw(screen, event, paint)), () =>
          Effect.sync(() => changes.notify())
        )
      })

    const runFork = Runtime.runFork(yield* Effect.runtime())
    const clock = yield* Clock.clockWith(Effect.succeed)
    const giveUpAfter = Duration.toMillis(options.giveUpAfter ?? "10 minutes")
    let lostAt: number | undefined
    let isConnected = false

    const onStatus = (status: Client.ConnectionStatus) => {
      const now = Number(clock.unsafeCurrentTimeNanos()) / 1e6
      if (status.type === "connected") {
        if (lostAt !== undefined) runFork(tell(noticeText({ is: "back" }, paint)))
        lostAt = undefined
        isConnected = true
        return
      }
      if (!isConnected) return
      const { error } = status
      if (lostAt === undefined) runFork(tell(noticeText({ is: "lost", reason: error.message }, paint)))
      lostAt ??= now
      if (now - lostAt >= giveUpAfter) {
        Deferred.unsafeDone(ended, new Client.ConnectionFailed({ message: error.message, isTimeout: true }))
      }
    }

    const { session: continued, timeout, token, url } = options
    const sessions = yield* Client.makeSessions({
      baseUrl: url,
      token,
      ...(timeout !== undefined && { timeout }),
      onStatus
    })
    yield* sessions.connect

    const session = Option.isSome(continued) ? continued.value : (yield* sessions.create(options.agentType)).id
    yield* remark(paint.dim(`· session ${session}; :help lists the commands`))

    const synced = yield* Deferred.make<void>()
    const onUpdate = (update: Client.SessionUpdate): Effect.Effect<void> => {
      switch (update.type) {
        case "event":
          return isKnown(update.event) ? onEvent(update.event) : Effect.void
        case "synced":
          return Effect.asVoid(Deferred.succeed(synced, undefined))
        case "reset":
          return remark(noticeText({ is: "reset" }, paint))
        case "trimmed":
          return update.after === 0 ? Effect.void : remark(noticeText({ is: "trimmed" }, paint))
      }
    }
    yield* sessions.subscribe(session).pipe(
      Stream.runForEach(update => Effect.zipRight(record(update), onUpdate(update))),
      Effect.onError(cause => Deferred.failCause(ended, cause)),
      Effect.forkScoped
    )
    yield* Effect.raceFirst(Effect.timeoutOption(Deferred.await(synced), catchUpWithin), Deferred.await(ended))

    /** Sends a message. Returns the turn that it starts. */
    const say = (content: string) =>
      Effect.suspend(() => {
        const clientMessageId = randomUUID()
        own.add(clientMessageId)
        return Effect.map(sessions.send(session, content, { clientMessageId }), ({ turnId }) => turnId)
      })

    /** Waits until a turn has ended, or the agent waits for an answer. */
    const settled = (turnId: string) =>
      Effect.tap(
        changes.until(() =>
          state.ended.has(turnId) || state.open.length > 0 ? Option.some(state.ended.get(turnId)) : Option.none()
        ),
        end =>
          Effect.sync(() => {
            if (end === "turn_errored") failures++
          })
      )

    const reply = (open: Requests.Open, line: string) =>
      Either.match(Requests.answerOf(open, line), {
        onLeft: ({ message }) => tell(message),
        onRight: answer =>
          Effect.suspend(() => {
            state = Requests.settle(state, open.requestId)
            return sessions.answer(session, open.requestId, answer)
          }).pipe(
            Effect.tapError(() =>
              Effect.sync(() => {
                state = Requests.reopen(state, open)
              })
            )
          )
      })

    const follow = (
      command: Exclude<Command.Command, { readonly do: "say" | "quit" }>
    ): Effect.Effect<void, Client.SessionsError> => {
      const show = <A, E>(
        answer: Effect.Effect<A, E>,
        recordOf: (answer: A) => unknown,
        textOf: (answer: A) => string
      ) => Effect.flatMap(answer, answer => Effect.zipRight(record(recordOf(answer)), remark(textOf(answer))))
      const showSession = (answer: Effect.Effect<Client.Session, Client.SessionsError>) =>
        show(answer, session => ({ type: "session", session }), AnswerText.ofSession)
      const showFile = (answer: Effect.Effect<Client.FileContent, Client.SessionsError>) =>
        show(answer, file => ({ type: "file", file }), AnswerText.ofFile)
      switch (command.do) {
        case "nothing":
          return Effect.void
        case "help":
          return tell(Command.help)
        case "sessions":
          return show(
            Effect.map(Stream.runHead(sessions.list()), Option.getOrThrow),
            page => ({ type: "sessions", ...page }),
            AnswerText.ofSessions
          )
        case "start":
          return showSession(sessions.start(session))
        case "stop":
          return showSession(sessions.stop(session))
        case "interrupt":
          return Effect.asVoid(sessions.interrupt(session))
        case "files": {
          const { path } = command
          return show(
            sessions.listFiles(session, path === undefined ? {} : { path }),
            files => ({ type: "files", files }),
            AnswerText.ofFiles
          )
        }
        case "read":
          return showFile(sessions.readFile(session, command.path))
        case "history":
          return show(
            sessions.fileHistory(session, command.path),
            iterations => ({ type: "iterations", iterations }),
            AnswerText.ofIterations
          )
        case "at":
          return showFile(sessions.fileAtIteration(session, command.path, command.iteration))
      }
    }

    /** Executes a line. Returns the turn to wait for, if it has started one. */
    const perform = (command: Exclude<Command.Command, { readonly do: "quit" }>) => {
      if (command.do !== "say") return Effect.as(follow(command), undefined)
      const open = state.open[0]
      return open === undefined ? say(command.content) : Effect.as(reply(open, command.content), open.turnId)
    }

    const execute = (command: Parameters<typeof perform>[0]): Effect.Effect<string | undefined> =>
      Effect.suspend(() => perform(command)).pipe(
        Effect.catchAll(error => Effect.as(fail(AnswerText.ofError(error)), undefined))
      )

    /** Executes lines one after the other, each after the end of the one before. */
    const byItself: Effect.Effect<void, ChatFailed> = Effect.gen(function* () {
      for (;;) {
        const input = yield* terminal.next
        if (Option.isNone(input)) break
        if (input.value.is !== "line") continue
        const command = Command.parse(input.value.text)
        if (Either.isLeft(command)) {
          yield* fail(command.left.message)
          continue
        }
        if (command.right.do === "quit") break
        const turnId = yield* execute(command.right)
        if (turnId !== undefined) yield* settled(turnId)
      }
      if (state.open.length > 0)
        return yield* new ChatFailed({ message: "The input ended before the agent was answered" })
      if (failures > 0) {
        return yield* new ChatFailed({ message: failures === 1 ? "One thing failed" : `${failures} things failed` })
      }
    })

    /** Reads lines as they are typed, and executes them in order in the background. */
    const withPerson: Effect.Effect<void, Interrupted, Scope.Scope> = Effect.gen(function* () {
      const room = yield* Effect.makeSemaphore(16)
      for (;;) {
        promptState = "idle"
        yield* put(screen => [screen, ""])
        const input = yield* terminal.next
        promptState = "busy"
        if (Option.isNone(input)) return
        if (input.value.is === "interrupt") {
          if (state.running.size === 0) return yield* new Interrupted()
          yield* Effect.forkScoped(execute({ do: "interrupt" }))
          continue
        }
        const command = Command.parse(input.value.text)
        if (Either.isLeft(command)) {
          yield* tell(command.left.message)
          continue
        }
        const { right } = command
        if (right.do === "quit") return
        yield* room.take(1)
        yield* Effect.forkScoped(Effect.ensuring(execute(right), room.release(1)))
      }
    })

    const conversation: Effect.Effect<void, ChatFailed | Interrupted, Scope.Scope> = terminal.isInteractive
      ? withPerson
      : byItself
    yield* Effect.raceFirst(conversation, Deferred.await(ended)).pipe(
      Effect.ensuring(
        Effect.zipRight(
          put(Screen.breakLine),
          terminal.isInteractive ? terminal.complain(`Go on with --session ${session}`) : Effect.void
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
