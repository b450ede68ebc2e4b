/** The requests of clients. Unknown members are ignored, so that newer clients can connect. */
import { Schema } from "effect"
import {
  ClientMessageId,
  Count,
  Cursor,
  described,
  Epoch,
  Identifier,
  Integer,
  Json,
  Name,
  optional,
  Path,
  RequestId,
  SessionId,
  schemaName,
  variables
} from "./Fields.ts"
import { listedSessions, pagedEvents } from "./Limits.ts"

const request = <Type extends string, Fields extends Schema.Struct.Fields>(
  type: Type,
  description: string,
  fields: Fields
) =>
  Schema.Struct({ type: Schema.Literal(type), id: RequestId, ...fields }).annotations({
    identifier: schemaName(type, "Request"),
    description
  })

/** A whole number from 1 to a limit. */
const upTo = (most: number) =>
  Integer.pipe(Schema.between(1, most, { message: () => `must be a whole number from 1 to ${most}` }))

const clientMessageId = optional(
  described(
    ClientMessageId,
    "Makes the request idempotent. Unique in the session, such as a UUID. A repeated request with the same content is not carried out again and gets the same answer. Different content is a `conflict`."
  )
)

/** The order of a list. */
export const ListOrder = described(
  Schema.Literal("created", "activity").annotations({
    message: () => ({ message: "must be created or activity", override: true })
  }),
  "`created`, the default: the newest session first. `activity`: the session first that was last active."
)

/** Restricts a list to the sessions with this value of a member. */
export const listFilter = (name: "running" | "waiting" | "failed") =>
  described(Schema.Boolean, `Only sessions with this \`${name}\`. Requires the order \`activity\`.`)

/** What a session is created with. */
export const creation = {
  agentType: Name,
  title: optional(Name),
  deployment: optional(described(Json, "Where and how the agent is deployed. Passed to the platform unchanged.")),
  environment: optional(variables(Schema.String, "Environment variables of the agent.")),
  secrets: optional(variables(Schema.Redacted(Schema.String), "Secrets of the agent. Kept in memory only."))
}

/** What the start of a session replaces. */
export const start = {
  secrets: optional(variables(Schema.Redacted(Schema.String), "Replace all secrets of the session.")),
  environment: optional(
    variables(Schema.String, "Replaces the environment of the session. Used from the next instance on.")
  ),
  deployment: optional(described(Json, "Replaces the deployment of the session. Used from the next instance on."))
}

/** The number of sessions in a page. */
export const ListLimit = described(
  upTo(listedSessions),
  `The largest number of sessions in the page, 1 to ${listedSessions}. The default is ${listedSessions}.`
)

/** The content of a message. */
export const Content = Schema.String.pipe(Schema.minLength(1, { message: () => "must not be empty" }))

/** Which turn is interrupted. */
export const interruption = { turnId: optional(described(Identifier, "The default is the turn in progress.")) }

/** An answer to a question or an approval request. */
export const answering = { requestId: Identifier, answer: Json }

/** The requests of clients, by `type`. */
export const Request = Schema.Union(
  request("create_session", "Creates a session. It is inactive at first.", creation),
  request("list_sessions", "Lists the sessions of the tenant in pages.", {
    order: optional(ListOrder),
    running: optional(listFilter("running")),
    waiting: optional(listFilter("waiting")),
    failed: optional(listFilter("failed")),
    limit: optional(ListLimit),
    cursor: optional(
      described(Cursor, "The `cursor` of the previous answer, to the same order and filter. Absent for the first page.")
    )
  }),
  request("get_session", "Returns a session.", { sessionId: SessionId }),
  request("start_session", "Starts a session. The answer is sent when the session is active.", {
    sessionId: SessionId,
    ...start
  }),
  request(
    "stop_session",
    "Stops the instance of a session. The answer is sent when the session is inactive, after 15 seconds at most. If the platform has not stopped the instance by then, the gateway continues to try.",
    {
      sessionId: SessionId
    }
  ),
  request("delete_session", "Stops a session and deletes it and its history.", {
    sessionId: SessionId
  }),
  request("subscribe", "Subscribes to the events of a session: first the missed events, then new ones.", {
    sessionId: SessionId,
    afterSeq: optional(
      described(
        Count,
        "The last `seq` that the client has received. The default is 0, which requests all events that are kept."
      )
    ),
    epoch: optional(described(Epoch, "The epoch of `afterSeq` or `beforeSeq`. Not checked if absent.")),
    fold: optional(
      described(
        Schema.Boolean,
        "Whether the conversation comes first, in `conversation` frames, and then the events after it. Not with `afterSeq`."
      )
    ),
    untilSeq: optional(
      described(Count, "The last event to send. The subscription then ends with `subscription_ended`.")
    ),
    beforeSeq: optional(
      described(
        Count,
        "Requests only the newest `limit` events before this `seq`, which `subscription_ended` follows. Another subscription to the session continues. Not with `afterSeq`, `untilSeq` or `fold`."
      )
    ),
    limit: optional(
      described(
        upTo(pagedEvents.most),
        `The largest number of events before \`beforeSeq\`, 1 to ${pagedEvents.most}. The default is ${pagedEvents.default}.`
      )
    )
  }),
  request("unsubscribe", "Ends a subscription.", { sessionId: SessionId }),
  request("send_message", "Sends a message, which starts a turn. A session that is not active is started first.", {
    sessionId: SessionId,
    content: Content,
    clientMessageId
  }),
  request("interrupt_turn", "Interrupts a turn.", {
    sessionId: SessionId,
    ...interruption
  }),
  request("answer", "Answers a question or an approval request of the agent.", {
    sessionId: SessionId,
    ...answering,
    clientMessageId
  }),
  request("list_files", "Lists the files in a directory of the workspace.", {
    sessionId: SessionId,
    path: optional(Path),
    depth: optional(described(Count, "The number of levels to list. The default is 1."))
  }),
  request("read_file", "Reads the current content of a file.", { sessionId: SessionId, path: Path }),
  request("file_history", "Lists all iterations of a file.", {
    sessionId: SessionId,
    path: Path
  }),
  request("file_at_iteration", "Reads the content of a file at an iteration.", {
    sessionId: SessionId,
    path: Path,
    iteration: Count
  }),
  request("ping", "Checks that the connection works.", {})
)
export type Request = (typeof Request)["Type"]

/** A request as it travels. */
export type RequestFrame = (typeof Request)["Encoded"]

/** The `type` of a request. */
export type RequestType = Request["type"]

/** The request with a `type`. */
export type RequestOf<Type extends RequestType> = Extract<Request, { readonly type: Type }>

/** All types of requests, in the order of the documents. */
export const requestTypes: ReadonlyArray<RequestType> = Request.members.map(({ fields }) => fields.type.literals[0])
