/** The events of sessions. An event has a `seq`, unlike an answer. */
import { Schema } from "effect"
import {
  Count,
  described,
  Finite,
  Identifier,
  Integer,
  Json,
  MessageKey,
  Name,
  optional,
  Path,
  Seq,
  SessionId,
  SessionState,
  schemaName,
  Timestamp,
  TraceId
} from "./Fields.ts"

/** The fields of every event, except its type. */
export const Envelope = Schema.Struct({
  sessionId: SessionId,
  seq: Seq,
  timestamp: described(Timestamp, "When the gateway received the event."),
  traceId: TraceId
}).annotations({ identifier: "EventEnvelope", description: "The members of every event." })
export type Envelope = (typeof Envelope)["Type"]

const body = <Type extends string, Fields extends Schema.Struct.Fields>(
  type: Type,
  description: string,
  fields: Fields
) =>
  Schema.Struct({ type: Schema.Literal(type), ...fields }).annotations({
    identifier: schemaName(type, "Event"),
    description
  })

/** The body of an event that names its turn, if the agent does. */
const ofTurn = <Type extends string, Fields extends Schema.Struct.Fields>(
  type: Type,
  description: string,
  fields: Fields
) => body(type, description, { turnId: optional(Identifier), ...fields })

/** An event without its envelope. */
export const EventBody = Schema.Union(
  body(
    "session_state",
    "The state of the session has changed, or its instance reports that it is starting, ready or stopping. A reported state does not change whether messages are accepted.",
    {
      state: SessionState,
      reason: optional(Schema.String)
    }
  ),
  body(
    "turn_started",
    "A turn has started. Either the message of a client was recorded and is being sent to the agent, or the agent started the turn by itself.",
    {
      turnId: Identifier,
      content: optional(described(Schema.String, "The message of the client. Absent if the agent started the turn.")),
      sub: optional(described(Schema.String, "The author of the message: the claim `sub` of the token.")),
      clientMessageId: optional(described(MessageKey, "The `clientMessageId` of the message, if it has one."))
    }
  ),
  body("turn_completed", "A turn has completed.", { turnId: Identifier }),
  body("turn_errored", "A turn has failed.", {
    turnId: Identifier,
    code: described(Schema.String, "A code of the platform or of the gateway."),
    message: Schema.String,
    retryable: described(Schema.Boolean, "Whether the same message may succeed later.")
  }),
  body("turn_interrupted", "A turn was interrupted.", {
    turnId: Identifier,
    reason: optional(Schema.String)
  }),
  ofTurn("text_start", "A message of the agent has started.", { messageId: Identifier, role: optional(Schema.String) }),
  ofTurn("text_delta", "A part of the text of a message.", {
    messageId: optional(described(Identifier, "Absent if the text is from a platform event of unknown type.")),
    text: Schema.String
  }),
  ofTurn("text_end", "A message of the agent is complete.", {
    messageId: Identifier,
    text: optional(described(Schema.String, "The whole text, if the platform sends it."))
  }),
  ofTurn("thinking_start", "The agent has started a thought.", { thinkingId: Identifier }),
  ofTurn("thinking_delta", "A part of the text of a thought.", { thinkingId: Identifier, text: Schema.String }),
  ofTurn("thinking_end", "A thought is complete.", {
    thinkingId: Identifier,
    text: optional(described(Schema.String, "The whole text, if the platform sends it."))
  }),
  ofTurn("tool_call_start", "The agent has started to write a tool call.", { callId: Identifier, name: Name }),
  ofTurn("tool_call_delta", "A part of the arguments of a tool call, as JSON text.", {
    callId: Identifier,
    text: Schema.String
  }),
  ofTurn("tool_call", "The agent has called a tool.", { callId: Identifier, name: Name, args: optional(Json) }),
  ofTurn("tool_progress", "The progress of a tool.", {
    callId: Identifier,
    message: optional(Schema.String),
    progress: optional(described(Finite, "A fraction: 1 means complete."))
  }),
  ofTurn("tool_result", "The result of a tool.", { callId: Identifier, result: optional(Json) }),
  ofTurn("tool_error", "A tool has failed.", {
    callId: Identifier,
    code: optional(Schema.String),
    message: Schema.String
  }),
  ofTurn("question_requested", "The agent asks a question. The request `answer` answers it.", {
    requestId: Identifier,
    question: Schema.String,
    options: optional(described(Schema.Array(Json), "The possible answers, if there is a choice."))
  }),
  ofTurn("question_resolved", "A question was answered.", {
    requestId: Identifier,
    answer: optional(Json)
  }),
  ofTurn("approval_requested", "The agent asks for approval. The request `answer` approves or denies it.", {
    requestId: Identifier,
    action: Schema.String,
    description: optional(Schema.String),
    details: optional(described(Json, "The details of the action."))
  }),
  ofTurn("approval_resolved", "An approval request was approved or denied.", {
    requestId: Identifier,
    approved: Schema.Boolean,
    reason: optional(Schema.String)
  }),
  ofTurn("terminal_opened", "A terminal was opened.", {
    terminalId: Identifier,
    command: optional(Schema.String),
    cwd: optional(Schema.String)
  }),
  ofTurn("terminal_output", "The output of a terminal.", {
    terminalId: Identifier,
    stream: optional(described(Schema.String, "`stdout` or `stderr`, if known.")),
    text: Schema.String
  }),
  ofTurn("terminal_exited", "The process of a terminal has exited.", {
    terminalId: Identifier,
    exitCode: optional(described(Integer, "Absent if a signal ended the process.")),
    signal: optional(Schema.String)
  }),
  ofTurn("file_changed", "A file of the workspace has changed.", {
    change: Schema.Literal("created", "modified", "deleted", "renamed"),
    path: Path,
    previousPath: optional(described(Path, "The previous path of a renamed file.")),
    iteration: optional(Count),
    size: optional(described(Count, "The size of the file in bytes.")),
    hash: optional(Schema.String)
  }),
  ofTurn("plan_updated", "The plan of the agent is new or has changed.", { plan: Json }),
  ofTurn("step_started", "A step of the plan has started.", { stepId: Identifier, title: optional(Schema.String) }),
  ofTurn("step_completed", "A step of the plan has completed.", {
    stepId: Identifier,
    title: optional(Schema.String),
    status: optional(Schema.String)
  }),
  ofTurn("subagent_started", "The agent has started a subagent.", {
    subagentId: Identifier,
    agentType: optional(Schema.String),
    task: optional(Schema.String)
  }),
  ofTurn("subagent_completed", "A subagent has completed.", {
    subagentId: Identifier,
    agentType: optional(Schema.String),
    result: optional(Json)
  }),
  ofTurn("artifact_created", "The agent has created an artifact.", {
    artifactId: Identifier,
    name: optional(Name),
    mimeType: optional(Schema.String),
    uri: optional(Schema.String)
  }),
  ofTurn("checkpoint_created", "The agent has created a checkpoint, to which its state can be restored.", {
    checkpointId: Identifier,
    label: optional(Schema.String)
  }),
  ofTurn("state_snapshot", "The whole state of the agent.", { state: Json }),
  ofTurn("state_delta", "A change of the state of the agent, usually as JSON Patch (RFC 6902).", { patch: Json }),
  ofTurn("usage_update", "The usage of the agent, as counted by the platform.", {
    inputTokens: optional(Count),
    outputTokens: optional(Count),
    totalTokens: optional(Count),
    cacheReadTokens: optional(Count),
    cacheWriteTokens: optional(Count),
    costUsd: optional(Finite.pipe(Schema.nonNegative())),
    model: optional(Schema.String)
  }),
  ofTurn("usage_context", "How much of the context window of the model is used.", {
    used: described(Count, "Tokens."),
    limit: described(Integer.pipe(Schema.positive()), "Tokens."),
    percent: described(
      Finite.pipe(Schema.nonNegative()),
      "`used` as a percentage of `limit`, with two decimals. It may exceed 100."
    )
  }),
  ofTurn("rate_limited", "The agent must wait for its model or a tool.", {
    message: optional(Schema.String),
    retryAfterMs: optional(Count)
  }),
  ofTurn("error", "An error of the agent or its instance. It does not end the turn.", {
    code: Schema.String,
    message: Schema.String,
    retryable: Schema.Boolean
  })
)
export type EventBody = (typeof EventBody)["Type"]

/** The `type` of an event. */
export type EventType = EventBody["type"]

/** The body of the events with a `type`. */
export type EventBodyOf<Type extends EventType> = Extract<EventBody, { readonly type: Type }>

/** An event as clients get it. */
export const Event = Schema.extend(EventBody, Envelope)

/** An event as clients receive it. It needs no decoding. */
export type Event = Envelope & EventBody

/** The events with a `type`, with their envelope. */
export type EventOf<Type extends EventType> = Envelope & EventBodyOf<Type>

/** All types of events, in the order of the documents. */
export const eventTypes: ReadonlyArray<EventType> = EventBody.members.map(({ fields }) => fields.type.literals[0])

/** The three events that end a turn. */
export const turnEnds = [
  "turn_completed",
  "turn_errored",
  "turn_interrupted"
] as const satisfies ReadonlyArray<EventType>

/** The body of an event that ends a turn. */
export type TurnEnd = EventBodyOf<(typeof turnEnds)[number]>

/**
 * Adds the envelope to a body. In the text of the event, `type` comes first.
 *
 * `{ ...body, sessionId: … }` would leave a hidden class of a kilobyte in V8's old space for each event.
 */
export const event = (envelope: Envelope, body: EventBody): Event => Object.assign({}, body, envelope)
