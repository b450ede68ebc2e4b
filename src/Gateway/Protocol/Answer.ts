/** The answers of the gateway to requests. Unlike an event, an answer has no `seq`. */
import { Schema } from "effect"
import { FileEntry, FileIteration } from "../../Upstream/Workspace.ts"
import { ErrorCode, errorMeanings } from "./Codes.ts"
import {
  Count,
  Cursor,
  described,
  Epoch,
  Identifier,
  optional,
  RequestId,
  Session,
  SessionId,
  schemaName,
  Timestamp,
  TraceId
} from "./Fields.ts"
import { conversationBytes } from "./Limits.ts"
import type { RequestType } from "./Request.ts"

const answer = <Type extends string, Fields extends Schema.Struct.Fields>(
  type: Type,
  description: string,
  fields: Fields
) =>
  Schema.Struct({ type: Schema.Literal(type), id: RequestId, ...fields }).annotations({
    identifier: schemaName(type, "Answer"),
    description
  })

/** Answers a request that failed, or ends a subscription. */
export const ErrorAnswer = Schema.Struct({
  type: Schema.Literal("error"),
  id: optional(described(RequestId, "Absent if the id of the frame could not be read.")),
  sessionId: optional(
    described(SessionId, "The session whose subscription ended with this error. There is no `id` then.")
  ),
  error: Schema.Struct({
    code: ErrorCode,
    message: Schema.String,
    retryable: described(Schema.Boolean, "Whether the same request may succeed later."),
    traceId: TraceId
  })
}).annotations({
  identifier: schemaName("error", "Answer"),
  description: "Answers a request that failed, or a frame that is not a request."
})
export type ErrorAnswer = (typeof ErrorAnswer)["Type"]

/** A part of a conversation. It has no `id`, as it is one of many. */
const ConversationAnswer = Schema.Struct({
  type: Schema.Literal("conversation"),
  sessionId: SessionId,
  epoch: Epoch,
  seq: described(Count, "The newest event in the conversation. The events after it follow."),
  index: described(Count, "The number of the part, from 0."),
  last: described(Schema.Boolean, "Whether it is the last part."),
  text: described(
    Schema.String,
    `A part of the conversation as JSON text, at most ${conversationBytes} bytes in UTF-8. All parts together are the text.`
  )
}).annotations({
  identifier: schemaName("conversation", "Answer"),
  description: "Follows `subscribed` if the request has `fold`."
})

/** The answers to requests, by `type`. */
export const Answer = Schema.Union(
  answer("session_created", "Answers `create_session`.", { session: Session }),
  answer("session_list", "Answers `list_sessions`. Sessions are ordered by `createdAt`, then `id`, the newest first.", {
    sessions: Schema.Array(Session),
    cursor: optional(described(Cursor, "The cursor of the next page. Absent on the last page."))
  }),
  answer("session", "Answers `get_session`, `start_session` and `stop_session`.", {
    session: Session
  }),
  answer("session_deleted", "Answers `delete_session`.", { sessionId: SessionId }),
  answer("subscribed", "Answers `subscribe`. The missed events follow, then new ones.", {
    session: Session,
    epoch: Epoch,
    headSeq: described(Count, "The `seq` of the newest event at this time. Events up to it are missed events."),
    recovered: described(
      Schema.Boolean,
      "Whether the events continue after `afterSeq`. If not, all events that are kept follow. With `beforeSeq`: whether none of the events is missing."
    )
  }),
  ConversationAnswer,
  answer(
    "subscription_ended",
    "Follows the last event of a `subscribe` with `untilSeq` or `beforeSeq`, with its `id`.",
    {
      sessionId: SessionId
    }
  ),
  answer("unsubscribed", "Answers `unsubscribe`.", { sessionId: SessionId }),
  answer("accepted", "Answers `send_message`, `interrupt_turn` and `answer`.", {
    turnId: optional(described(Identifier, "The turn that the message started, or the interrupted turn."))
  }),
  answer("file_list", "Answers `list_files`.", { entries: Schema.Array(FileEntry) }),
  answer("file_content", "Answers `read_file` and `file_at_iteration`.", {
    path: Schema.String,
    content: Schema.String,
    encoding: described(Schema.Literal("utf-8", "base64"), "The encoding of the file in `content`."),
    iteration: optional(Count),
    size: optional(described(Count, "The size of the file in bytes.")),
    hash: optional(Schema.String)
  }),
  answer("file_history_list", "Answers `file_history`. The oldest iteration is first.", {
    path: Schema.String,
    iterations: Schema.Array(FileIteration)
  }),
  answer("pong", "Answers `ping`.", { timestamp: Timestamp }),
  ErrorAnswer
)
export type Answer = (typeof Answer)["Type"]

/** The answer with a `type`. */
export type AnswerOf<Type extends Answer["type"]> = Extract<Answer, { readonly type: Type }>

/** What an `error` answer is made of. */
export interface Failure {
  readonly id: string | undefined
  /** The session whose subscription ended with it. */
  readonly sessionId?: string
  readonly code: ErrorCode
  readonly message: string
  readonly traceId: string
  /** If absent, the default of the code. */
  readonly retryable?: boolean | undefined
}

/** The answer to a request that failed. */
export const errorAnswer = ({ id, sessionId, code, message, traceId, retryable }: Failure): ErrorAnswer => ({
  type: "error",
  ...(id === undefined ? {} : { id }),
  ...(sessionId === undefined ? {} : { sessionId }),
  error: { code, message, retryable: retryable ?? errorMeanings[code].retryable, traceId }
})

/** The `type` of an answer. */
export type AnswerType = Answer["type"]

/** The type of the answer to each request. A request that fails is answered with `error`. */
export const answerTypes = {
  create_session: "session_created",
  list_sessions: "session_list",
  get_session: "session",
  start_session: "session",
  stop_session: "session",
  delete_session: "session_deleted",
  subscribe: "subscribed",
  unsubscribe: "unsubscribed",
  send_message: "accepted",
  interrupt_turn: "accepted",
  answer: "accepted",
  list_files: "file_list",
  read_file: "file_content",
  file_history: "file_history_list",
  file_at_iteration: "file_content",
  ping: "pong"
} as const satisfies Readonly<Record<RequestType, AnswerType>>

/** The types of what may follow the answer to `subscribe`, in addition to events. */
export const followingTypes = ["conversation", "subscription_ended"] as const satisfies ReadonlyArray<AnswerType>

/** The answer to a request with a `type`, if it succeeds. */
export type AnswerTo<Type extends RequestType> = Extract<Answer, { readonly type: (typeof answerTypes)[Type] }>
