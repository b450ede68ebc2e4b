/** Serves sessions over HTTP, as the requests of the WebSocket. */
import { Effect, Layer } from "effect"
import { type ApiError, NotFound, ServiceUnavailable } from "../../Http/ApiError.ts"
import type { DrainingSignal } from "../../Http/DrainingSignal.ts"
import type { Incoming } from "../../Http/Endpoints.ts"
import * as Reply from "../../Http/Reply.ts"
import { Clients } from "../Clients.ts"
import type { Conversations } from "../Conversations.ts"
import type { Answer, AnswerOf } from "../Protocol/Answer.ts"
import type { Session } from "../Protocol/Fields.ts"
import type { Call } from "../Requests.ts"
import type { CreateSession } from "../Sessions.ts"
import { asCaller, callerOf } from "../Streams/Caller.ts"
import { HttpSessions } from "./Endpoints.ts"
import * as Events from "./Events.ts"

type Answering = Effect.Effect<Reply.Reply, ApiError>

/** Names the requests of HTTP clients to other nodes. */
const id = "http"

const json = (answer: object, status = 200): Reply.Reply => ({ ...Reply.json(JSON.stringify(answer)), status })

const sessionReply = ({ session }: { readonly session: Session }): Reply.Reply => json({ session })

const turnReply = ({ turnId }: AnswerOf<"accepted">): Reply.Reply => json({ turnId })

const done = (): Reply.Reply => Reply.empty(204)

/** The members that are present. */
const keyed = (clientMessageId: string | undefined) => (clientMessageId === undefined ? {} : { clientMessageId })

/** Another answer if the session does not exist. */
const unlessFound = (found: Answering, otherwise: Answering): Answering =>
  Effect.catchAll(found, error => (error instanceof NotFound ? otherwise : Effect.fail(error)))

const make = Effect.gen(function* () {
  const { execute, sessions } = yield* Clients
  const events = yield* Events.make

  /** Executes a request, whose answer has this type. */
  const ask = <Type extends Answer["type"]>(
    incoming: Incoming,
    _type: Type,
    request: Call
  ): Effect.Effect<AnswerOf<Type>, ApiError> =>
    asCaller(incoming, caller => execute(caller, request)) as Effect.Effect<AnswerOf<Type>, ApiError>

  const find = (incoming: Incoming, sessionId: string) =>
    ask(incoming, "session", { type: "get_session", id, sessionId })

  /** Creates a session with an id of the client's, unless it exists. */
  const createOnce = (incoming: Incoming, sessionId: string, request: CreateSession) => {
    const found = Effect.map(find(incoming, sessionId), sessionReply)
    const created = asCaller(incoming, caller => sessions.create(caller, request, sessionId)).pipe(
      Effect.map(session => json({ session }, 201))
    )
    // It may have been created in the meantime; the failure says so, unless it still cannot be found.
    const again = Effect.catchAll(created, failure =>
      failure instanceof ServiceUnavailable ? unlessFound(found, Effect.fail(failure)) : Effect.fail(failure)
    )
    return unlessFound(found, again)
  }

  return HttpSessions.of({
    create: ({ incoming, payload: { id: sessionId, ...request } }) =>
      sessionId === undefined
        ? Effect.map(ask(incoming, "session_created", { type: "create_session", id, ...request }), ({ session }) =>
            json({ session }, 201)
          )
        : createOnce(incoming, sessionId, request),
    list: ({ incoming, urlParams }) =>
      Effect.map(ask(incoming, "session_list", { type: "list_sessions", id, ...urlParams }), ({ cursor, sessions }) =>
        json({ sessions, cursor })
      ),
    get: ({ incoming, path }) => Effect.map(find(incoming, path.id), sessionReply),
    remove: ({ incoming, path: { id: sessionId } }) =>
      Effect.map(ask(incoming, "session_deleted", { type: "delete_session", id, sessionId }), done),
    start: ({ incoming, path: { id: sessionId }, payload }) =>
      Effect.map(ask(incoming, "session", { type: "start_session", id, sessionId, ...payload }), sessionReply),
    stop: ({ incoming, path: { id: sessionId } }) =>
      Effect.map(ask(incoming, "session", { type: "stop_session", id, sessionId }), sessionReply),
    send: ({ headers, incoming, path: { id: sessionId }, payload }) => {
      const key = keyed(headers["idempotency-key"])
      return Effect.map(
        ask(incoming, "accepted", { type: "send_message", id, sessionId, ...payload, ...key }),
        turnReply
      )
    },
    answer: ({ headers, incoming, path: { id: sessionId }, payload }) => {
      const key = keyed(headers["idempotency-key"])
      return Effect.map(ask(incoming, "accepted", { type: "answer", id, sessionId, ...payload, ...key }), done)
    },
    interrupt: ({ incoming, path: { id: sessionId }, payload }) =>
      Effect.map(ask(incoming, "accepted", { type: "interrupt_turn", id, sessionId, ...payload }), turnReply),
    conversation: ({ headers, incoming, path }) =>
      events.conversation(callerOf(incoming), path.id, headers["if-none-match"]),
    events: ({ headers, incoming, path, urlParams: { cursor, live, offset } }) =>
      events.answer({
        caller: callerOf(incoming),
        expiresAt: incoming.identity?.expiresAt,
        sessionId: path.id,
        offset,
        live,
        cursor,
        ifNoneMatch: headers["if-none-match"],
        isHead: incoming.method === "HEAD"
      })
  })
})

/** Serves sessions over HTTP until the scope closes. */
export const layer: Layer.Layer<HttpSessions, never, Clients | Conversations | DrainingSignal> = Layer.scoped(
  HttpSessions,
  make
)
