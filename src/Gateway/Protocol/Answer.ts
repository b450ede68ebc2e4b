/** What the gateway answers to requests. An answer has no `seq`, unlike an event. */
import { Schema } from "effect"
import { FileEntry, FileIteration } from "../../Upstream/Workspace.ts"
import { ErrorCode, errorMeanings } from "./ErrorCode.ts"
import {
  Count,
  Cursor,
  described,
  Epoch,
  Identifier,
  optional,
  RequestId,
  SessionId,
  schemaName,
  Timestamp,
  TraceId
} from "./Fields.ts"
import type { RequestType } from "./Request.ts"
import { Session } from "./Session.ts"

const answer = <Type extends string, Fields extends Schema.Struct.Fields>(
  type: Type,
  description: string,
  fields: Fields
) =>
  Schema.Struct({ type: Schema.Literal(type), id: RequestId, ...fields }).annotations({
    identifier: schemaName(type, "Answer"),
    description
  })

export const ErrorAnswer = Schema.Struct({
  type: Schema.Literal("error"),
  id: optional(described(RequestId, "Absent where the frame's id could not be read.")),
  sessionId: optional(described(SessionId, "The session whose subscription has ended by this; then there is no `id`.")),
  error: Schema.Struct({
    code: ErrorCode,
    message: Schema.String,
    retryable: described(Schema.Boolean, "Whether the same request may succeed later."),
    traceId: TraceId
  })
}).annotations({
  identifier: schemaName("error", "Answer"),
  description: "Answers a request that failed, and a frame that is none."
})

export type ErrorAnswer = (typeof ErrorAnswer)["Type"]

export const Answer = Schema.Union(
  answer("session_created", "Answers `create_session`.", { session: Session }),
  answer("session_list", "Answers `list_sessions`, newest first by `createdAt`, then `id`.", {
    sessions: Schema.Array(Session),
    cursor: optional(described(Cursor, "Asks for the next page; absent on the last one."))
  }),
  answer("session", "Answers `get_session`, `start_session` and `stop_session`.", {
    session: Session
  }),
  answer("session_deleted", "Answers `delete_session`.", { sessionId: SessionId }),
  answer("subscribed", "Answers `subscribe`; the missed events follow, then those to come.", {
    session: Session,
    epoch: Epoch,
    headSeq: described(Count, "The newest `seq` at this moment: events up to it are missed ones."),
    recovered: described(Schema.Boolean, "Whether events go on right after `afterSeq`; else all that is kept follows.")
  }),
  answer("unsubscribed", "Answers `unsubscribe`.", { sessionId: SessionId }),
  answer("accepted", "Answers `send_message`, `interrupt_turn` and `answer`.", {
    turnId: optional(described(Identifier, "The turn that a message started, or that is interrupted."))
  }),
  answer("file_list", "Answers `list_files`.", { entries: Schema.Array(FileEntry) }),
  answer("file_content", "Answers `read_file` and `file_at_iteration`.", {
    path: Schema.String,
    content: Schema.String,
    encoding: described(Schema.Literal("utf-8", "base64"), "How `content` stands for the file's bytes."),
    iteration: optional(Count),
    size: optional(described(Count, "Bytes of the content.")),
    hash: optional(Schema.String)
  }),
  answer("file_history_list", "Answers `file_history`, the oldest iteration first.", {
    path: Schema.String,
    iterations: Schema.Array(FileIteration)
  }),
  answer("pong", "Answers `ping`.", { timestamp: Timestamp }),
  ErrorAnswer
)

export type Answer = (typeof Answer)["Type"]

export type AnswerOf<Type extends Answer["type"]> = Extract<Answer, { readonly type: Type }>

export interface Failure {
  readonly id: string | undefined
  /** The session whose subscription has ended by it. */
  readonly sessionId?: string
  readonly code: ErrorCode
  readonly message: string
  readonly traceId: string
  /** That of the code where absent. */
  readonly retryable?: boolean | undefined
}

/** The answer to a request that failed. */
export const errorAnswer = ({ id, sessionId, code, message, traceId, retryable }: Failure): ErrorAnswer => ({
  type: "error",
  ...(id === undefined ? {} : { id }),
  ...(sessionId === undefined ? {} : { sessionId }),
  error: { code, message, retryable: retryable ?? errorMeanings[code].retryable, traceId }
})

export type AnswerType = Answer["type"]

/** The answer to each request; one that fails is answered with `error`. */
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

export type AnswerTo<Type extends RequestType> = Extract<Answer, { readonly type: (typeof answerTypes)[Type] }>
