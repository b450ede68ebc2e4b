/** The lines of a conversation: parses them, executes them, and shows their answers. */
import { randomUUID } from "node:crypto"
import { Effect, Either, Option, Stream } from "effect"
import type * as Client from "../../Client/Effect/Client.ts"
import { clean, cleanName, count } from "../Terminal/Text.ts"
import * as State from "./State.ts"
import type { Display } from "./Terminal.ts"

export interface Session {
  readonly id: string
  readonly sessions: Client.SessionsService
}

/** A line that starts with a colon, or a message. */
export type Command =
  | { readonly do: "nothing" | "sessions" | "stop" | "start" | "interrupt" | "help" }
  | { readonly do: "quit" }
  | { readonly do: "files"; readonly path: string | undefined }
  | { readonly do: "read" | "history"; readonly path: string }
  | { readonly do: "at"; readonly path: string; readonly iteration: number }
  | { readonly do: "say"; readonly content: string }

/** The commands, as `:help` lists them. */
export const commands: Readonly<Record<string, string>> = {
  ":files [path]": "lists the files of the agent's workspace",
  ":read <path>": "prints a file",
  ":history <path>": "lists the iterations of a file",
  ":at <path> <iteration>": "prints a file as it was at an iteration",
  ":sessions": "lists your sessions",
  ":start": "starts the agent",
  ":stop": "stops the agent",
  ":interrupt": "interrupts the turn",
  ":quit": "ends the client; the session stays",
  ":help": "lists the commands"
}

/** The text of `:help`. */
export const help: string = [
  ...Object.entries(commands).map(([usage, meaning]) => `${usage.padEnd(26)}${meaning}`),
  `${"anything else".padEnd(26)}is sent to the agent, or answers its question; two colons send one`
].join("\n")

const refuse = (message: string) => Either.left(`${message} :help lists all commands.`)

/** Parses a line, or says what is wrong. Two colons at the start stand for a message that starts with one. */
export const parse = (line: string): Either.Either<Command, string> => {
  if (line.trim() === "") return Either.right({ do: "nothing" })
  if (line.startsWith("::")) return Either.right({ do: "say", content: line.slice(1) })
  if (!line.startsWith(":")) return Either.right({ do: "say", content: line })
  const [, name = "", argument = ""] = /^:(\S*)\s*(.*?)\s*$/u.exec(line) ?? []
  switch (name) {
    case "sessions":
    case "stop":
    case "start":
    case "interrupt":
    case "quit":
    case "help":
      return argument === "" ? Either.right({ do: name }) : refuse(`:${name} takes no argument.`)
    case "files":
      return Either.right({ do: "files", path: argument === "" ? undefined : argument })
    case "read":
    case "history":
      return argument === "" ? refuse(`:${name} needs a path.`) : Either.right({ do: name, path: argument })
    case "at": {
      const [, path, iteration] = /^(.*\S)\s+(\d{1,15})$/u.exec(argument) ?? []
      return path === undefined
        ? refuse(":at needs a path and the number of an iteration.")
        : Either.right({ do: "at", path, iteration: Number(iteration) })
    }
    default:
      return refuse(`There is no command :${cleanName(name)}.`)
  }
}

const time = (millis: number): string => new Date(millis).toISOString()

/** One session, in one line. */
const ofSession = ({ id, state, title, headSeq }: Client.Session): string =>
  `${id}  ${state}  ${title === "" ? "(no title)" : cleanName(title)}  ${count(headSeq)} events`

const ofSessions = ({ cursor, sessions }: Client.SessionPage): string =>
  sessions.length === 0
    ? "There are no sessions."
    : [...sessions.map(ofSession), ...(cursor === undefined ? [] : ["Older sessions exist."])].join("\n")

const ofFiles = (entries: ReadonlyArray<Client.FileEntry>): string =>
  entries.length === 0
    ? "There are no files."
    : entries
        .map(({ path, size, type }) =>
          type === "directory"
            ? `${cleanName(path)}/`
            : `${cleanName(path)}${size === undefined ? "" : `  ${count(size)} bytes`}`
        )
        .join("\n")

const ofFile = ({ content, encoding }: Client.FileContent): string =>
  encoding === "base64"
    ? `(${count(Buffer.byteLength(content, "base64"))} bytes, not text)`
    : clean(content).replace(/\n$/, "")

const ofIterations = (iterations: ReadonlyArray<Client.FileIteration>): string =>
  iterations
    .map(({ iteration, timestamp, size, hash }) =>
      [String(iteration), time(timestamp), `${count(size)} bytes`, cleanName(hash)].join("  ")
    )
    .join("\n")

/** The failure of a call. */
const ofError = (error: Client.SessionsError): string =>
  error._tag === "RequestRefused"
    ? `${clean(error.message)} (${error.code}, trace ${error.traceId})`
    : clean(error.message)

/** A command that does not end the conversation. */
export type Executable = Exclude<Command, { readonly do: "quit" }>

/** Executes a command and shows its answer or failure. Returns the turn to wait for if the command has started one. */
export type Execute = (command: Executable) => Effect.Effect<string | undefined>

/** Executes commands that are no messages, and shows their answers. */
const executorOf = ({ id, sessions }: Session, { line, note, record }: Display) => {
  const show = <A, E>(answer: Effect.Effect<A, E>, recordOf: (answer: A) => unknown, textOf: (answer: A) => string) =>
    Effect.flatMap(answer, answer => Effect.zipRight(record(recordOf(answer)), line(textOf(answer))))
  const showSession = (answer: Effect.Effect<Client.Session, Client.SessionsError>) =>
    show(answer, session => ({ type: "session", session }), ofSession)
  const showFile = (answer: Effect.Effect<Client.FileContent, Client.SessionsError>) =>
    show(answer, file => ({ type: "file", file }), ofFile)
  return (command: Exclude<Executable, { readonly do: "say" }>): Effect.Effect<void, Client.SessionsError> => {
    switch (command.do) {
      case "nothing":
        return Effect.void
      case "help":
        return note(help)
      case "sessions":
        return show(
          Effect.map(Stream.runHead(sessions.list()), Option.getOrThrow),
          page => ({ type: "sessions", ...page }),
          ofSessions
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
          ofFiles
        )
      }
      case "read":
        return showFile(sessions.readFile(id, command.path))
      case "history":
        return show(
          sessions.fileHistory(id, command.path),
          iterations => ({ type: "iterations", iterations }),
          ofIterations
        )
      case "at":
        return showFile(sessions.fileAtIteration(id, command.path, command.iteration))
    }
  }
}

/** The executor of a conversation. A message answers the oldest open request, or is sent to the agent. */
export const make = (session: Session, state: State.State, display: Display): Execute => {
  const { id, sessions } = session
  const execute = executorOf(session, display)

  const say = (content: string) =>
    Effect.suspend(() => {
      const clientMessageId = randomUUID()
      state.sent(clientMessageId)
      return Effect.map(sessions.send(id, content, { clientMessageId }), ({ turnId }) => turnId)
    })

  const answer = (open: State.Open, line: string) =>
    Either.match(State.answerOf(open, line), {
      onLeft: display.note,
      onRight: answer =>
        Effect.suspend(() => {
          state.requests = State.settle(state.requests, open.requestId)
          return sessions.answer(id, open.requestId, answer)
        }).pipe(
          Effect.tapError(() =>
            Effect.sync(() => {
              state.requests = State.reopen(state.requests, open)
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
      Effect.catchAll(error => Effect.as(display.fail(ofError(error)), undefined))
    )
}
