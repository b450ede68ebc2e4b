/** `causeway sessions` and `causeway chat`. */
import { randomUUID } from "node:crypto"
import { Effect, Option, Schema, Stream } from "effect"
import * as Client from "../Client/Effect/Client.ts"
import { Event } from "../Gateway/Protocol.ts"
import * as Chat from "./Chat/Chat.ts"
import * as Screen from "./Chat/Screen.ts"
import * as Terminal from "./Chat/Terminal.ts"
import { CommandFailed, exitCodes, failed, wrong } from "./CommandFailed.ts"
import { choice, flag, numberOption, text, wholeNumber } from "./CommandOptions.ts"
import * as Connection from "./Connection.ts"
import * as Entry from "./Entries/Entry.ts"
import { Args, Command, Options } from "./Library.ts"
import { failureOf, quoted } from "./Service.ts"
import { contentOf } from "./Terminal/Input.ts"
import {
  answer,
  type Column,
  list as details,
  isJson,
  Output,
  record,
  table,
  type WriteError,
  write
} from "./Terminal/Output.ts"
import { cleanName, count, type Paint } from "./Terminal/Text.ts"

const id = Args.text({ name: "session" }).pipe(Args.withDescription("The id of the session, as in the list"))

const columns: ReadonlyArray<Column> = [
  { title: "SESSION" },
  { title: "STATE" },
  { title: "ACTIVITY" },
  { title: "AGENT", shrinks: true },
  { title: "EVENTS", align: "right" },
  { title: "UPDATED" },
  { title: "TITLE", shrinks: true }
]

const activity = ({ failed, running, waiting }: Client.Session): string =>
  waiting ? "waiting" : running ? "running" : failed ? "failed" : ""

const row = (session: Client.Session): ReadonlyArray<string> => [
  session.id,
  session.state,
  activity(session),
  session.agentType,
  count(session.headSeq),
  Entry.time(session.lastEventAt ?? session.updatedAt),
  session.title
]

/** Keeps the first of several sessions with an id: in the order of activity a session may come twice. */
const once = (): ((session: Client.Session) => boolean) => {
  const known = new Set<string>()
  return ({ id }) => !known.has(id) && known.add(id).size > 0
}

const options = {
  http: flag("http", "Use HTTP requests, where WebSockets are blocked"),
  ...Connection.sessionOptions
}

/** A client of the gateway until the scope closes, and the function that explains failures of its calls. */
const gateway = ({ http, ...given }: Connection.Given & { readonly http: boolean }) =>
  Effect.gen(function* () {
    const connection = yield* Connection.resolve(given, "sessions")
    const { timeout, token, url } = connection
    const transport = http ? "http" : "webSocket"
    const sessions = yield* Client.makeSessions({ baseUrl: url, token, timeout, transport })
    const explain = failureOf(connection)
    // A failure at the start ends the command. Later the client reconnects by itself.
    yield* Effect.mapError(sessions.connect, explain)
    return { sessions, explain, connection }
  })

/** `causeway sessions list`. */
export const list = Command.make(
  "list",
  {
    limit: numberOption("limit", "sessions", "Maximum number of sessions", 200),
    order: choice("order", ["created", "activity"]).pipe(
      Options.withDescription("created (the newest first) or activity; default activity with a filter, else created"),
      Options.optional
    ),
    waiting: flag("waiting", "Only sessions that wait for a person"),
    running: flag("running", "Only sessions with a turn in progress"),
    failed: flag("failed", "Only sessions that have failed"),
    ...options
  },
  ({ failed, json, limit, order, running, waiting, ...given }) =>
    Effect.gen(function* () {
      if (limit < 1) return yield* wrong("--limit must be at least 1")
      const filter = { ...(failed && { failed }), ...(running && { running }), ...(waiting && { waiting }) }
      const isFiltered = failed || running || waiting
      const chosen = Option.getOrElse(order, () => (isFiltered ? ("activity" as const) : ("created" as const)))
      const { explain, sessions } = yield* gateway(given)
      const isRecord = yield* isJson(json)
      const { cells } = yield* Output
      const found = yield* sessions.list({ ...filter, order: chosen, limit: Math.min(limit, 200) }).pipe(
        Stream.mapConcat(({ sessions }) => sessions),
        Stream.filter(once()),
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
export const show = Command.make("show", { id, ...options }, ({ id, json, ...given }) =>
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
        ["last event", session.lastEventAt === undefined ? "(none)" : Entry.time(session.lastEventAt)],
        ["activity", activity(session) || "(none)"],
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
    ...options
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

interface Printed {
  readonly screen: Screen.Screen
  readonly last: Client.SessionEvent | undefined
}

const ends: ReadonlySet<string> = new Set(["turn_completed", "turn_errored", "turn_interrupted"])

/** Prints the events of a turn until its end. Fails if the turn does. `isNew`: its events cannot be trimmed yet. */
const printTurn = (
  updates: Stream.Stream<Client.SessionUpdate, CommandFailed>,
  turnId: string | undefined,
  isNew: boolean,
  isRecord: boolean
) =>
  Effect.gen(function* () {
    const { paint } = yield* Output
    const isOfTurn = ({ event }: { readonly event: Client.SessionEvent }) =>
      "turnId" in event && event.turnId === turnId
    const print = ({ last, screen }: Printed, update: Client.SessionUpdate) => {
      const isGone = update.type === "reset" || (update.type === "synced" && last === undefined && !isNew)
      if (isGone) return failed("The events of the turn are no longer kept")
      if (update.type !== "event" || !isOfTurn(update)) return Effect.succeed({ last, screen })
      const { event } = update
      if (isRecord) return Effect.as(record(update), { last: event, screen })
      const [next, shown] = ends.has(event.type) ? Screen.breakLine(screen) : drawUpdate(screen, update, paint)
      // The message itself is known.
      const isShown = shown !== "" && event.type !== "turn_started"
      return Effect.as(isShown ? write(shown) : Effect.void, { last: event, screen: next })
    }
    const { last } = yield* updates.pipe(
      Stream.takeUntil(update => update.type === "event" && isOfTurn(update) && ends.has(update.event.type)),
      Stream.runFoldEffect<Printed, Client.SessionUpdate, CommandFailed | WriteError, Output>(
        { screen: Screen.empty, last: undefined },
        print
      )
    )
    if (last?.type === "turn_errored") {
      return yield* failed(
        `The turn failed: ${last.message}`,
        last.retryable ? "Sending it again may help." : undefined
      )
    }
    if (last?.type === "turn_interrupted") return yield* failed("The turn was interrupted")
  })

/** `causeway sessions send <session> <text>`. */
export const send = Command.make(
  "send",
  {
    id,
    content: Args.text({ name: "text" }).pipe(Args.withDescription("The message; - is standard input")),
    wait: flag("wait", "Print the answer of the agent until the turn ends; fail if the turn does"),
    messageId: text("id", "Id of the message: with the same id it is sent once; default a random one", "id"),
    ...options
  },
  ({ content, id, json, messageId, wait, ...given }) =>
    Effect.gen(function* () {
      const message = content === "-" ? (yield* contentOf("-")).replace(/\r?\n$/, "") : content
      const { connection, explain, sessions } = yield* gateway(given)
      const isRecord = yield* isJson(json)
      const clientMessageId = Option.getOrElse(messageId, () => randomUUID())
      const isNew = Option.isNone(messageId)
      // The turn of a message with a known id may have started before.
      const before = wait && isNew ? yield* Effect.mapError(sessions.get(id), explain) : undefined
      const after = before === undefined ? {} : { after: { epoch: before.epoch, seq: before.headSeq } }
      const sent = yield* Effect.mapError(
        sessions.send(id, message, { clientMessageId }),
        failureOf(connection, `with --id ${quoted(clientMessageId)} it can be repeated, and is sent once`)
      )
      if (isRecord) yield* record(sent)
      else if (!wait) yield* write(`${sent.turnId}\n`)
      const updates = Stream.mapError(sessions.subscribe(id, after), explain)
      if (wait) yield* printTurn(updates, sent.turnId, isNew, isRecord)
    }).pipe(Effect.scoped)
).pipe(Command.withDescription("Send a message to the agent of a session"))

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
