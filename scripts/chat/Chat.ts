/** A conversation with an agent: sends lines to it, and prints its events. */
import { randomUUID } from "node:crypto"
import { Effect, Either, Option, type Schedule, Schema, type Scope } from "effect"
import type { Event } from "../../src/Gateway/Protocol.ts"
import { Changes } from "../../src/Simulator/Changes.ts"
import * as AnswerText from "./AnswerText.ts"
import * as Client from "./Client.ts"
import * as Command from "./Command.ts"
import type { Target } from "./Connection.ts"
import * as Requests from "./Requests.ts"
import * as Screen from "./Screen.ts"
import { Terminal } from "./Terminal.ts"
import { clean, coloured, type Paint, plain } from "./Text.ts"

/** The session and the gateway. */
export interface Options extends Target {
  /** The session to continue; default a new one. */
  readonly session: Option.Option<string>
  readonly agentType: string
  readonly backOff?: Schedule.Schedule<unknown>
}

/** The conversation failed, or part of it did. */
export class ChatFailed extends Schema.TaggedError<ChatFailed>()("ChatFailed", { message: Schema.String }) {}

/** The user ended the conversation by a signal. */
export class Interrupted extends Schema.TaggedError<Interrupted>()("Interrupted", {}) {}

const notices = {
  back: "· connected again",
  gap: "· events that are no longer kept are missing here",
  reset: "· the history was reset; this is the new one"
} as const

const noticeText = (notice: Client.Notice, { red, yellow }: Paint): string => {
  if (notice.is === "lost") return yellow(`· ${clean(notice.reason)}; connecting again`)
  return notice.is === "complaint" ? red(`✗ ${clean(notice.message)}`) : yellow(notices[notice.is])
}

/** How often a request is repeated if its answer is lost. */
const mostRepetitions = 5

/** Whether to show a prompt. */
type Mood = "idle" | "busy"

const make = (options: Options) =>
  Effect.gen(function* () {
    const terminal = yield* Terminal
    const paint = terminal.hasColours ? coloured : plain
    const changes = new Changes()
    /** Output is written in order. */
    const pen = yield* Effect.makeSemaphore(1)
    let screen = Screen.empty
    let standing = Requests.nothing
    let mood: Mood = "busy"
    let failures = 0
    /** Messages of this client, which are on the screen already. */
    const own = new Set<string>()

    const isPromptWanted = () =>
      mood === "idle" && screen.isAtLineStart && (standing.running.size === 0 || standing.open.length > 0)
    const promptText = () => (standing.open.length > 0 ? "answer> " : "> ")

    const put = (draw: (screen: Screen.Screen) => Screen.Drawn): Effect.Effect<void> =>
      Effect.suspend(() => {
        const [next, text] = draw(screen)
        screen = next
        const prompt = Effect.suspend(() => (isPromptWanted() ? terminal.prompt(promptText()) : Effect.void))
        return Effect.zipRight(terminal.write(text), prompt)
      }).pipe(pen.withPermits(1))

    const tell = (line: string) => put(screen => Screen.drawLine(screen, line))

    /** A failure that the exit code must show. */
    const fail = (message: string) =>
      Effect.suspend(() => {
        failures++
        return tell(paint.red(`✗ ${message}`))
      })

    const onEvent = (event: Event) =>
      Effect.suspend(() => {
        standing = Requests.advance(standing, event)
        const isOwn = event.type === "turn_started" && own.delete(event.clientMessageId ?? "")
        return Effect.tap(isOwn ? Effect.void : put(screen => Screen.draw(screen, event, paint)), () =>
          Effect.sync(() => changes.notify())
        )
      })

    const client = yield* Client.make({
      ...options,
      onEvent,
      onNotice: notice => tell(noticeText(notice, paint))
    })

    const failed = ({ message }: Client.RequestFailed | Client.AnswerLost) => new ChatFailed({ message })

    const session = yield* Effect.mapError(
      Option.match(options.session, {
        onSome: Effect.succeed,
        onNone: () =>
          Effect.map(
            client.ask(id => ({ type: "create_session", id, agentType: options.agentType })),
            ({ session }) => session.id
          )
      }),
      failed
    )
    yield* tell(paint.dim(`· session ${session}; :help lists the commands`))
    yield* Effect.mapError(client.follow(session), failed)
    yield* client.caughtUp

    /** Repeats a request if the answer was lost with the connection. A request with a `clientMessageId` is idempotent. */
    const surely = <A, E>(request: Effect.Effect<A, E | Client.AnswerLost>) =>
      Effect.retry(request, { while: error => error instanceof Client.AnswerLost, times: mostRepetitions })

    /** Sends a message. Returns the turn that it starts. */
    const say = (content: string) =>
      Effect.suspend(() => {
        const clientMessageId = randomUUID()
        own.add(clientMessageId)
        return Effect.map(
          surely(client.ask(id => ({ type: "send_message", id, sessionId: session, content, clientMessageId }))),
          ({ turnId }) => turnId
        )
      })

    /** Waits until a turn has ended, or the agent waits for an answer. */
    const settled = (turnId: string) =>
      Effect.tap(
        changes.until(() =>
          standing.ended.has(turnId) || standing.open.length > 0
            ? Option.some(standing.ended.get(turnId))
            : Option.none()
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
            standing = Requests.settle(standing, open.requestId)
            const { requestId } = open
            const clientMessageId = randomUUID()
            return surely(
              client.ask(id => ({ type: "answer", id, sessionId: session, requestId, answer, clientMessageId }))
            )
          }).pipe(
            Effect.tapError(() =>
              Effect.sync(() => {
                standing = Requests.reopen(standing, open)
              })
            )
          )
      })

    const interruptTurn = client.ask(id => ({ type: "interrupt_turn", id, sessionId: session }))

    const follow = (
      command: Exclude<Command.Command, { readonly do: "say" | "quit" }>
    ): Effect.Effect<void, Client.RequestFailed | Client.AnswerLost> => {
      const show = <E, R>(answer: Effect.Effect<Parameters<typeof AnswerText.textOf>[0], E, R>) =>
        Effect.flatMap(answer, answer => tell(AnswerText.textOf(answer)))
      switch (command.do) {
        case "nothing":
          return Effect.void
        case "help":
          return tell(Command.help)
        case "sessions":
          return show(client.ask(id => ({ type: "list_sessions", id })))
        case "start":
          return show(client.ask(id => ({ type: "start_session", id, sessionId: session })))
        case "stop":
          return show(client.ask(id => ({ type: "stop_session", id, sessionId: session })))
        case "interrupt":
          return Effect.asVoid(interruptTurn)
        case "files": {
          const { path } = command
          const below = path === undefined ? {} : { path }
          return show(client.ask(id => ({ type: "list_files", id, sessionId: session, ...below })))
        }
        case "read":
          return show(client.ask(id => ({ type: "read_file", id, sessionId: session, path: command.path })))
        case "history":
          return show(client.ask(id => ({ type: "file_history", id, sessionId: session, path: command.path })))
        case "at": {
          const { iteration, path } = command
          return show(client.ask(id => ({ type: "file_at_iteration", id, sessionId: session, path, iteration })))
        }
      }
    }

    /** Executes a line. Returns the turn to wait for, if it has started one. */
    const perform = (command: Exclude<Command.Command, { readonly do: "quit" }>) => {
      if (command.do !== "say") return Effect.as(follow(command), undefined)
      const open = standing.open[0]
      return open === undefined ? say(command.content) : Effect.as(reply(open, command.content), open.turnId)
    }

    const carryOut = (command: Parameters<typeof perform>[0]): Effect.Effect<string | undefined> =>
      Effect.suspend(() => perform(command)).pipe(
        Effect.catchTags({
          RequestFailed: ({ answer }) => Effect.as(fail(AnswerText.textOf(answer)), undefined),
          AnswerLost: ({ message }) => Effect.as(fail(message), undefined)
        })
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
        const turnId = yield* carryOut(command.right)
        if (turnId !== undefined) yield* settled(turnId)
      }
      if (standing.open.length > 0)
        return yield* new ChatFailed({ message: "The input ended before the agent was answered" })
      if (failures > 0) {
        return yield* new ChatFailed({ message: failures === 1 ? "One thing failed" : `${failures} things failed` })
      }
    })

    /** Reads lines as they are typed, and executes them in order in the background. */
    const withPerson: Effect.Effect<void, Interrupted, Scope.Scope> = Effect.gen(function* () {
      const room = yield* Effect.makeSemaphore(16)
      for (;;) {
        mood = "idle"
        yield* put(screen => [screen, ""])
        const input = yield* terminal.next
        mood = "busy"
        if (Option.isNone(input)) return
        if (input.value.is === "interrupt") {
          if (standing.running.size === 0) return yield* new Interrupted()
          yield* Effect.forkScoped(carryOut({ do: "interrupt" }))
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
        yield* Effect.forkScoped(Effect.ensuring(carryOut(right), room.release(1)))
      }
    })

    const conversation: Effect.Effect<void, ChatFailed | Interrupted, Scope.Scope> = terminal.isInteractive
      ? withPerson
      : byItself
    yield* Effect.raceFirst(conversation, client.ended).pipe(
      Effect.ensuring(
        Effect.zipRight(
          put(Screen.breakLine),
          terminal.isInteractive ? terminal.complain(`Go on with --session ${session}`) : Effect.void
        )
      )
    )
  })

/** Runs a conversation until the input or the user ends it. */
export const run = (options: Options): Effect.Effect<void, ChatFailed | Interrupted, Terminal> =>
  Effect.scoped(make(options)).pipe(
    Effect.catchTag("Disconnected", ({ reason }) => new ChatFailed({ message: `${options.url}: ${reason}` }))
  )
