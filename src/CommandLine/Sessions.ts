/** `causeway sessions` and `causeway chat`. */
import { Effect, Option, Schema, Stream } from "effect"
import * as Client from "../Client/Effect/Client.ts"
import { Event } from "../Gateway/Protocol.ts"
import * as Chat from "./Chat/Chat.ts"
import * as Screen from "./Chat/Screen.ts"
import * as Terminal from "./Chat/Terminal.ts"
import { CommandFailed, exitCodes, failed, wrong } from "./CommandFailed.ts"
import { flag, numberOption, text, wholeNumber } from "./CommandOptions.ts"
import * as Connection from "./Connection.ts"
import * as Entry from "./Entries/Entry.ts"
import { Args, Command, Options } from "./Library.ts"
import { failureOf } from "./Service.ts"
import { answer, type Column, list as details, isJson, Output, record, table, write } from "./Terminal/Output.ts"
import { cleanName, count, type Paint } from "./Terminal/Text.ts"

const id = Args.text({ name: "session" }).pipe(Args.withDescription("The id of the session, as in the list"))

const columns: ReadonlyArray<Column> = [
  { title: "SESSION" },
  { title: "STATE" },
  { title: "AGENT", shrinks: true },
  { title: "EVENTS", align: "right" },
  { title: "UPDATED" },
  { title: "TITLE", shrinks: true }
]

const row = ({ agentType, headSeq, id, state, title, updatedAt }: Client.Session): ReadonlyArray<string> => [
  id,
  state,
  agentType,
  count(headSeq),
  Entry.time(updatedAt),
  title
]

/** A client of the gateway until the scope closes, and the function that explains failures of its calls. */
const gateway = (given: Connection.Given) =>
  Effect.gen(function* () {
    const connection = yield* Connection.resolve(given, "sessions")
    const { timeout, token, url } = connection
    const sessions = yield* Client.makeSessions({ baseUrl: url, token, timeout })
    const explain = failureOf(connection)
    // A failure at the start ends the command. Later the client reconnects by itself.
    yield* Effect.mapError(sessions.connect, explain)
    return { sessions, explain }
  })

/** `causeway sessions list`. */
export const list = Command.make(
  "list",
  {
    limit: numberOption("limit", "sessions", "Maximum number of sessions, the newest first", 200),
    ...Connection.sessionOptions
  },
  ({ json, limit, ...given }) =>
    Effect.gen(function* () {
      if (limit < 1) return yield* wrong("--limit must be at least 1")
      const { explain, sessions } = yield* gateway(given)
      const isRecord = yield* isJson(json)
      const { cells } = yield* Output
      const found = yield* sessions.list({ limit: Math.min(limit, 200) }).pipe(
        Stream.mapConcat(({ sessions }) => sessions),
        Stream.take(limit),
        Stream.runCollect,
        Effect.mapError(explain)
      )
      const rows = [...found]
      if (isRecord) return yield* Effect.forEach(rows, record, { discard: true })
      return yield* write(rows.length === 0 ? "There are no sessions.\n" : table(columns, rows.map(row), cells()))
    }).pipe(Effect.scoped)
).pipe(Command.withDescription("List the sessions of your tenant"))

/** `causeway sessions show <session>`. */
export const show = Command.make("show", { id, ...Connection.sessionOptions }, ({ id, json, ...given }) =>
  Effect.gen(function* () {
    const { explain, sessions } = yield* gateway(given)
    const session = yield* Effect.mapError(sessions.get(id), explain)
    const { missingConfiguration, missingSecrets } = session
    yield* answer(json, session, () =>
      details([
        ["session", session.id],
        ["title", session.title === "" ? "(none)" : cleanName(session.title)],
        ["state", session.state],
        ["agent", cleanName(session.agentType)],
        ["instance", session.instanceId ?? "(none)"],
        ["tenant", session.tenant],
        ["created", Entry.time(session.createdAt)],
        ["updated", Entry.time(session.updatedAt)],
        ["events", count(session.headSeq)],
        ["epoch", session.epoch],
        ...(missingSecrets === undefined ? [] : [["missing secrets", missingSecrets.join(", ")] as const]),
        ...(missingConfiguration === undefined ? [] : [["missing", missingConfiguration.join(", ")] as const])
      ])
    )
  }).pipe(Effect.scoped)
).pipe(Command.withDescription("Show a session"))

/** A newer gateway may send other events. Text for people omits them. */
const isKnown = Schema.is(Event)

const drawUpdate = (screen: Screen.Screen, update: Client.SessionUpdate, paint: Paint): Screen.Drawn => {
  switch (update.type) {
    case "event":
      return isKnown(update.event) ? Screen.draw(screen, update.event, paint) : [screen, ""]
    case "conversation":
      return [screen, ""]
    case "synced":
      return Screen.drawLine(screen, paint.dim(`· the session is ${update.session.state}`))
    case "reset":
      return Screen.drawLine(screen, paint.yellow("· the history was reset; this is the new one"))
    case "trimmed":
      return Screen.drawLine(screen, paint.yellow("· earlier events are no longer kept"))
  }
}

/** `causeway sessions tail <session>`. */
export const tail = Command.make(
  "tail",
  {
    id,
    from: wholeNumber("from", "seq", "Only events after this one; requires --epoch"),
    epoch: text("epoch", "The epoch of the history to which --from belongs, as in show"),
    once: flag("once", "End after the existing events"),
    ...Connection.sessionOptions
  },
  ({ epoch, from, id, json, once, ...given }) =>
    Effect.gen(function* () {
      if (Option.isSome(from) !== Option.isSome(epoch)) return yield* wrong("--from and --epoch require each other")
      const { explain, sessions } = yield* gateway(given)
      const isRecord = yield* isJson(json)
      const { paint } = yield* Output
      const after =
        Option.isSome(from) && Option.isSome(epoch) ? { after: { seq: from.value, epoch: epoch.value } } : {}
      yield* sessions.subscribe(id, after).pipe(
        Stream.mapError(explain),
        Stream.takeUntil(({ type }) => once && type === "synced"),
        Stream.runFoldEffect(Screen.empty, (screen, update) => {
          if (isRecord) return Effect.as(record(update), screen)
          const [next, shown] = drawUpdate(screen, update, paint)
          return Effect.as(shown === "" ? Effect.void : write(shown), next)
        })
      )
    }).pipe(Effect.scoped)
).pipe(Command.withDescription("Print the events of a session, and follow them until interrupted"))

/** `causeway chat`. */
export const chat = Command.make(
  "chat",
  {
    session: text("session", "Session to continue; default a new one"),
    agent: Options.text("agent").pipe(
      Options.withPseudoName("type"),
      Options.withDescription("Type of the agent of a new session; default assistant"),
      Options.withDefault("assistant")
    ),
    ...Connection.sessionOptions
  },
  ({ agent, json, session, ...given }) =>
    Effect.gen(function* () {
      const connection = yield* Connection.resolve(given, "sessions")
      const { timeout, token, url } = connection
      const isRecord = yield* isJson(json)
      yield* Chat.run({ url, token, session, agentType: agent, timeout, json: isRecord }).pipe(
        Effect.provide(Terminal.layer),
        Effect.catchTags({
          Interrupted: () => new CommandFailed({ message: "", exitCode: exitCodes.interrupted }),
          ChatFailed: ({ cause, message }) => (cause === undefined ? failed(message) : failureOf(connection)(cause))
        })
      )
    })
).pipe(Command.withDescription("Talk with an agent; lines can also come from a file or a pipe"))
