/** The contract of sessions over HTTP: requests as on the WebSocket, and the events as a durable stream. */
import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as HttpApiSchema from "@effect/platform/HttpApiSchema"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { Conflict, GatewayTimeout, Gone, NotFound, PayloadTooLarge } from "../../Http/ApiError.ts"
import { ObjectBody, Part, RouteKind } from "../../Http/Contract.ts"
import { CallErrors, GatewayAccess, ServerErrors } from "../Api.ts"
import { ClientMessageId, Cursor, described, Identifier, optional, Session, SessionId } from "../Protocol/Fields.ts"
import { listedSessions } from "../Protocol/Limits.ts"
import {
  answering,
  Content,
  creation,
  interruption,
  ListLimit,
  ListOrder,
  listFilter,
  start
} from "../Protocol/Request.ts"
import * as Description from "./Description.ts"

const text = (description: string) => optional(Schema.String.annotations({ description }))

/** Unknown members are refused: ignoring a misspelled `secrets` would start an agent without them. */
const body = <Fields extends Schema.Struct.Fields>(identifier: string, fields: Fields) =>
  Schema.Struct(fields).annotations({ identifier, parseOptions: { onExcessProperty: "error" } })

const json = <Fields extends Schema.Struct.Fields>(identifier: string, fields: Fields) =>
  Schema.Struct(fields).annotations({ identifier })

/** An id that a client may choose: a recent time in epoch milliseconds as 12 hexadecimal digits, and 24 random ones. */
const ChosenId = Schema.String.pipe(
  Schema.pattern(/^[0-9a-f]{36}$/, { message: () => "must be 36 digits of 0-9 and a-f" }),
  Schema.annotations({
    description:
      "An id that the client chooses: the time in epoch milliseconds as 12 hexadecimal digits in lower case, and 24 random ones. The time may differ from that of the service by a minute. The same id again answers the session that exists, whatever else the body says."
  })
)

const limitText = Schema.String.pipe(
  Schema.filter(digits => /^\d{1,9}$/.test(digits), {
    message: () => `must be a whole number from 1 to ${listedSessions}`
  })
)

const Path = Schema.Struct({ id: SessionId })

const BooleanText = Schema.Literal("true", "false").annotations({
  message: () => ({ message: "must be true or false", override: true })
})

const filter = (name: Parameters<typeof listFilter>[0]) => {
  const Filter = listFilter(name)
  return optional(
    Schema.transform(BooleanText, Filter, {
      strict: true,
      decode: text => text === "true",
      encode: value => (value ? "true" : "false")
    }).annotations({
      jsonSchema: { type: "boolean", description: `Only sessions with this \`${name}\`. Requires \`order=activity\`.` }
    })
  )
}

const ListParams = Schema.Struct({
  order: optional(ListOrder),
  running: filter("running"),
  waiting: filter("waiting"),
  failed: filter("failed"),
  limit: optional(
    Schema.transform(limitText, ListLimit, { strict: true, decode: Number, encode: String }).annotations({
      jsonSchema: {
        type: "integer",
        minimum: 1,
        maximum: listedSessions,
        default: listedSessions,
        description: "The size of a page."
      }
    })
  ),
  cursor: optional(described(Cursor, "The `cursor` of the previous page."))
})

const EventsParams = Schema.Struct({
  offset: text(
    "Where to begin: `-1` for the first event that is kept, which is the default; `now` for events to come; or `Stream-Next-Offset` of an earlier answer."
  ),
  live: optional(
    Schema.Literal("long-poll", "sse").annotations({
      description:
        "`long-poll` waits up to 25 seconds for an event, `sse` is a stream of Server-Sent Events. Without it, the answer has the events that are stored, up to 8 MiB. It requires `offset`.",
      message: () => ({ message: "must be long-poll or sse", override: true })
    })
  ),
  cursor: text("`Stream-Cursor` of the previous answer.")
})

const Conditions = Schema.Struct({ "if-none-match": text("The `ETag` of an earlier answer.") })

const Key = Schema.Struct({
  "idempotency-key": optional(
    described(
      ClientMessageId,
      "Makes the request idempotent. Unique in the session, such as a UUID. A repeated request with the same content is not carried out again and gets the same answer. Another content is 409."
    )
  )
})

const SessionAnswer = json("SessionAnswer", { session: Session })

const SessionList = json("SessionList", {
  sessions: Schema.Array(Session),
  cursor: optional(described(Cursor, "The cursor of the next page. Absent on the last page."))
})

const TurnAnswer = json("TurnAnswer", { turnId: Identifier })

const Event = Schema.Unknown.annotations({
  identifier: "SessionEvent",
  jsonSchema: { type: "object", description: "An event of the session, as the AsyncAPI document describes it." }
})

const Conversation = Schema.Unknown.annotations({
  identifier: "Conversation",
  jsonSchema: {
    type: "object",
    description:
      "The messages of a session with what the agent did, the requests that wait for a person, and the state of the run, as the AsyncAPI document describes it."
  }
})

const empty = (status: number, description: string) => HttpApiSchema.Empty(status).annotations({ description })

const done = empty(204, "It was done.")

/** The errors of requests that the node of the session executes. */
const NodeErrors = Schema.Union(NotFound.Wire, GatewayTimeout.Wire)

/** Sessions over HTTP, under any prefix. */
export const SessionRoutes = HttpApiGroup.make("sessions")
  .add(
    HttpApiEndpoint.post("create", "/sessions")
      .setPayload(body("CreateSession", { id: optional(ChosenId), ...creation }))
      .addSuccess(SessionAnswer)
      .addSuccess(SessionAnswer, { status: 201 })
      .addError(Conflict.Wire)
      .middleware(ObjectBody)
      .annotate(OpenApi.Transform, Description.create)
  )
  .add(
    HttpApiEndpoint.get("list", "/sessions")
      .setUrlParams(ListParams)
      .addSuccess(SessionList)
      .annotate(OpenApi.Transform, Description.list)
  )
  .add(
    HttpApiEndpoint.get("get", "/sessions/:id")
      .setPath(Path)
      .addSuccess(SessionAnswer)
      .addError(NodeErrors)
      .annotate(OpenApi.Transform, Description.get)
  )
  .add(
    HttpApiEndpoint.del("remove", "/sessions/:id")
      .setPath(Path)
      .addSuccess(done)
      .addError(NodeErrors)
      .annotate(OpenApi.Transform, Description.remove)
  )
  .add(
    HttpApiEndpoint.post("start", "/sessions/:id/start")
      .setPath(Path)
      .setPayload(body("StartSession", start))
      .addSuccess(SessionAnswer)
      .addError(CallErrors)
      .middleware(ObjectBody)
      .annotate(OpenApi.Transform, Description.start)
  )
  .add(
    HttpApiEndpoint.post("stop", "/sessions/:id/stop")
      .setPath(Path)
      .addSuccess(SessionAnswer)
      .addError(NodeErrors)
      .annotate(OpenApi.Transform, Description.stop)
  )
  .add(
    HttpApiEndpoint.post("send", "/sessions/:id/messages")
      .setPath(Path)
      .setHeaders(Key)
      .setPayload(body("SendMessage", { content: Content }))
      .addSuccess(TurnAnswer)
      .addError(CallErrors)
      .middleware(ObjectBody)
      .annotate(OpenApi.Transform, Description.send)
  )
  .add(
    HttpApiEndpoint.post("answer", "/sessions/:id/answers")
      .setPath(Path)
      .setHeaders(Key)
      .setPayload(body("AnswerAgent", answering))
      .addSuccess(done)
      .addError(CallErrors)
      .middleware(ObjectBody)
      .annotate(OpenApi.Transform, Description.answer)
  )
  .add(
    HttpApiEndpoint.post("interrupt", "/sessions/:id/interrupt")
      .setPath(Path)
      .setPayload(body("InterruptTurn", interruption))
      .addSuccess(TurnAnswer)
      .addError(CallErrors)
      .middleware(ObjectBody)
      .annotate(OpenApi.Transform, Description.interrupt)
  )
  .add(
    HttpApiEndpoint.get("conversation", "/sessions/:id/conversation")
      .setPath(Path)
      .setHeaders(Conditions)
      .addSuccess(Conversation)
      .addSuccess(empty(304, "The conversation is that of If-None-Match."))
      .addError(NotFound.Wire)
      .annotate(OpenApi.Transform, Description.conversation)
  )
  .add(
    HttpApiEndpoint.get("events", "/sessions/:id/events")
      .setPath(Path)
      .setUrlParams(EventsParams)
      .setHeaders(Conditions)
      .addSuccess(Schema.Array(Event))
      .addSuccess(empty(204, "No event came while the poll waited."))
      .addSuccess(empty(304, "The answer would be that of If-None-Match."))
      .addError(NotFound.Wire)
      .addError(Gone.Wire)
      .annotate(OpenApi.Transform, Description.events)
      .annotate(RouteKind, "stream")
  )
  .addError(ServerErrors)
  .addError(PayloadTooLarge.Wire)
  .middleware(GatewayAccess)
  .annotate(Part, "sessions")
  .annotate(OpenApi.Title, "Sessions")
  .annotate(OpenApi.Description, "Sessions of agents, their turns and their events.")

/** The same under `/api/v1`. */
export const SessionsGroup = SessionRoutes.prefix("/api/v1")
