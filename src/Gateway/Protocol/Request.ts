/** What clients send. Unknown members are ignored, so that newer clients can connect. */
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
import { listedSessions } from "./Limits.ts"

const request = <Type extends string, Fields extends Schema.Struct.Fields>(
  type: Type,
  description: string,
  fields: Fields
) =>
  Schema.Struct({ type: Schema.Literal(type), id: RequestId, ...fields }).annotations({
    identifier: schemaName(type, "Request"),
    description
  })

const clientMessageId = optional(
  described(
    ClientMessageId,
    "Unique in the session, such as a UUID: repeated with the same content it is sent once and answered the same; with another content it is a `conflict`."
  )
)

export const Request = Schema.Union(
  request("create_session", "Makes a session, inactive at first.", {
    agentType: Name,
    title: optional(Name),
    deployment: optional(described(Json, "Where and how the agent is deployed; passed on to the platform as it is.")),
    environment: optional(variables(Schema.String, "Environment variables of the agent.")),
    secrets: optional(variables(Schema.Redacted(Schema.String), "Secrets for the agent, kept in memory only."))
  }),
  request("list_sessions", "Asks for the tenant's sessions, page by page, newest first.", {
    limit: optional(
      described(
        Integer.pipe(
          Schema.between(1, listedSessions, { message: () => `must be a whole number from 1 to ${listedSessions}` })
        ),
        `Most sessions of the page, 1 to ${listedSessions}; ${listedSessions} where absent.`
      )
    ),
    cursor: optional(described(Cursor, "The `cursor` of the answer before; absent for the first page."))
  }),
  request("get_session", "Asks for one session.", { sessionId: SessionId }),
  request("start_session", "Activates a session; answered once it is active.", {
    sessionId: SessionId,
    secrets: optional(
      variables(
        Schema.Redacted(Schema.String),
        "Take the place of all secrets that the session had, from this start on."
      )
    ),
    environment: optional(
      variables(Schema.String, "Takes the place of the environment that the session had, from the next instance on.")
    ),
    deployment: optional(
      described(Json, "Takes the place of the deployment that the session had, from the next instance on.")
    )
  }),
  request(
    "stop_session",
    "Stops a session's instance; answered once it is inactive, after 15 seconds at most: what the platform has not stopped by then is stopped later.",
    {
      sessionId: SessionId
    }
  ),
  request("delete_session", "Stops a session and deletes it with its history.", {
    sessionId: SessionId
  }),
  request("subscribe", "Asks for a session's events: those missed, then those to come.", {
    sessionId: SessionId,
    afterSeq: optional(
      described(Count, "The last `seq` that the client has; 0 where absent, which asks for all that is kept.")
    ),
    epoch: optional(described(Epoch, "The epoch that `afterSeq` belongs to; not checked where absent."))
  }),
  request("unsubscribe", "Ends a subscription.", { sessionId: SessionId }),
  request("send_message", "Sends a message, which starts a turn; activates the session first.", {
    sessionId: SessionId,
    content: Schema.String.pipe(Schema.minLength(1, { message: () => "must not be empty" })),
    clientMessageId
  }),
  request("interrupt_turn", "Ends a turn before its time.", {
    sessionId: SessionId,
    turnId: optional(described(Identifier, "The turn in progress where absent."))
  }),
  request("answer", "Answers a question or a request for approval.", {
    sessionId: SessionId,
    requestId: Identifier,
    answer: Json,
    clientMessageId
  }),
  request("list_files", "Asks for the files below a directory of the workspace.", {
    sessionId: SessionId,
    path: optional(Path),
    depth: optional(described(Count, "Levels below the directory; 1 where absent."))
  }),
  request("read_file", "Asks for a file as it is now.", { sessionId: SessionId, path: Path }),
  request("file_history", "Asks for all iterations of a file.", {
    sessionId: SessionId,
    path: Path
  }),
  request("file_at_iteration", "Asks for a file as it was at an iteration.", {
    sessionId: SessionId,
    path: Path,
    iteration: Count
  }),
  request("ping", "Asks for a sign of life.", {})
)

export type Request = (typeof Request)["Type"]

/** A request as it travels. */
export type RequestFrame = (typeof Request)["Encoded"]

export type RequestType = Request["type"]

export type RequestOf<Type extends RequestType> = Extract<Request, { readonly type: Type }>

export const requestTypes: ReadonlyArray<RequestType> = Request.members.map(({ fields }) => fields.type.literals[0])
