/** Executes the lines of a conversation. */
import { randomUUID } from "node:crypto"
import { Effect, Either, Option, Stream } from "effect"
import type * as Client from "../../EffectClient/Client.ts"
import * as AnswerText from "./AnswerText.ts"
import * as Command from "./Command.ts"
import type { Display } from "./Display.ts"
import * as Requests from "./Requests.ts"
import type { Session } from "./Session.ts"
import type { State } from "./State.ts"

/** A command that does not end the conversation. */
export type Executable = Exclude<Command.Command, { readonly do: "quit" }>

/** Executes a command and shows its answer or failure. Returns the turn to wait for if the command has started one. */
export type Execute = (command: Executable) => Effect.Effect<string | undefined>

/** Executes commands that are no messages, and shows their answers. */
const commands = ({ id, sessions }: Session, { line, note, record }: Display) => {
  const show = <A, E>(answer: Effect.Effect<A, E>, recordOf: (answer: A) => unknown, textOf: (answer: A) => string) =>
    Effect.flatMap(answer, answer => Effect.zipRight(record(recordOf(answer)), line(textOf(answer))))
  const showSession = (answer: Effect.Effect<Client.Session, Client.SessionsError>) =>
    show(answer, session => ({ type: "session", session }), AnswerText.ofSession)
  const showFile = (answer: Effect.Effect<Client.FileContent, Client.SessionsError>) =>
    show(answer, file => ({ type: "file", file }), AnswerText.ofFile)
  return (command: Exclude<Executable, { readonly do: "say" }>): Effect.Effect<void, Client.SessionsError> => {
    switch (command.do) {
      case "nothing":
        return Effect.void
      case "help":
        return note(Command.help)
      case "sessions":
        return show(
          Effect.map(Stream.runHead(sessions.list()), Option.getOrThrow),
          page => ({ type: "sessions", ...page }),
          AnswerText.ofSessions
        )
      case "start":
        return showSession(sessions.start(id))
      case "stop":
        return showSession(sessions.stop(id))
      case "interrupt":
        return Effect.asVoid(sessions.interrupt(id))
      case "files": {
        const { path } = command
        return show(
          sessions.listFiles(id, path === undefined ? {} : { path }),
          files => ({ type: "files", files }),
          AnswerText.ofFiles
        )
      }
      case "read":
        return showFile(sessions.readFile(id, command.path))
      case "history":
        return show(
          sessions.fileHistory(id, command.path),
          iterations => ({ type: "iterations", iterations }),
          AnswerText.ofIterations
        )
      case "at":
        return showFile(sessions.fileAtIteration(id, command.path, command.iteration))
    }
  }
}

/** The executor of a conversation. A message answers the oldest open request, or is sent to the agent. */
export const make = (session: Session, state: State, display: Display): Execute => {
  const { id, sessions } = session
  const execute = commands(session, display)

  const say = (content: string) =>
    Effect.suspend(() => {
      const clientMessageId = randomUUID()
      state.sent(clientMessageId)
      return Effect.map(sessions.send(id, content, { clientMessageId }), ({ turnId }) => turnId)
    })

  const answer = (open: Requests.Open, line: string) =>
    Either.match(Requests.answerOf(open, line), {
      onLeft: ({ message }) => display.note(message),
      onRight: answer =>
        Effect.suspend(() => {
          state.requests = Requests.settle(state.requests, open.requestId)
          return sessions.answer(id, open.requestId, answer)
        }).pipe(
          Effect.tapError(() =>
            Effect.sync(() => {
              state.requests = Requests.reopen(state.requests, open)
            })
          )
        )
    })

  const perform = (command: Executable): Effect.Effect<string | undefined, Client.SessionsError> => {
    if (command.do !== "say") return Effect.as(execute(command), undefined)
    const open = state.requests.open[0]
    return open === undefined ? say(command.content) : Effect.as(answer(open, command.content), open.turnId)
  }

  return command =>
    Effect.suspend(() => perform(command)).pipe(
      Effect.catchAll(error => Effect.as(display.fail(AnswerText.ofError(error)), undefined))
    )
}
