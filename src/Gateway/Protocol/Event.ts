/** The events of sessions. An event has a `seq`, unlike an answer. */
import { Schema } from "effect"
import {
  ClientMessageId,
  Count,
  described,
  Finite,
  Identifier,
  Integer,
  Json,
  Name,
  optional,
  Path,
  Seq,
  SessionId,
  schemaName,
  Timestamp,
  TraceId
} from "./Fields.ts"
import { SessionState } from "./Session.ts"

/** The fields of every event beside its type. */
export const Envelope = Schema.Struct({
  sessionId: SessionId,
  seq: Seq,
  timestamp: described(Timestamp, "When the gateway took the event in."),
  traceId: TraceId
}).annotations({ identifier: "EventEnvelope", description: "What all events carry beside their type." })

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

/** The body of an event that belongs to a turn, and names it where the agent says so. */
const ofTurn = <Type extends string, Fields extends Schema.Struct.Fields>(
  type: Type,
  description: string,
  fields: Fields
) => body(type, description, { turnId: optional(Identifier), ...fields })

/** An event without its envelope. */
export const EventBody = Schema.Union(
  body(
    "session_state",
    "The session has come into another state, or its instance says that it is starting, ready or stopping; the session itself takes messages then as before.",
    {
      state: SessionState,
      reason: optional(Schema.String)
    }
  ),
  body(
    "turn_started",
    "A turn begins: a client's message was recorded and is on its way to the agent, or the agent begins one of its own accord.",
    {
      turnId: Identifier,
      content: optional(
        described(Schema.String, "What the client wrote; absent where the agent began of its own accord.")
      ),
      sub: optional(described(Schema.String, "Who wrote it, as the `sub` of their credential has it.")),
      clientMessageId: optional(described(ClientMessageId, "What the client called the message, where it did."))
    }
  ),
  body("turn_completed", "A turn has ended as it should.", { turnId: Identifier }),
  body("turn_errored", "A turn has failed.", {
    turnId: Identifier,
    code: described(Schema.String, "The platform's own code, or one of the gateway's."),
    message: Schema.String,
    retryable: described(Schema.Boolean, "Whether sending the message again may help.")
  }),
  body("turn_interrupted", "A turn was ended before its time.", {
    turnId: Identifier,
    reason: optional(Schema.String)
  }),
  ofTurn("text_start", "A message of the agent begins.", { messageId: Identifier, role: optional(Schema.String) }),
  ofTurn("text_delta", "A piece of a message.", {
    messageId: optional(
      described(Identifier, "Absent where the text came in an event that the gateway does not know.")
    ),
    text: Schema.String
  }),
  ofTurn("text_end", "A message has ended.", {
    messageId: Identifier,
    text: optional(described(Schema.String, "The message as a whole, where the platform repeats it."))
  }),
  ofTurn("thinking_start", "The agent begins to think.", { thinkingId: Identifier }),
  ofTurn("thinking_delta", "A piece of a thought.", { thinkingId: Identifier, text: Schema.String }),
  ofTurn("thinking_end", "A thought has ended.", {
    thinkingId: Identifier,
    text: optional(described(Schema.String, "The thought as a whole, where the platform repeats it."))
  }),
  ofTurn("tool_call_start", "The agent begins to write a call of a tool.", { callId: Identifier, name: Name }),
  ofTurn("tool_call_delta", "A piece of a call's arguments, as JSON text.", {
    callId: Identifier,
    text: Schema.String
  }),
  ofTurn("tool_call", "The agent calls a tool.", { callId: Identifier, name: Name, args: optional(Json) }),
  ofTurn("tool_progress", "How far a tool has come.", {
    callId: Identifier,
    message: optional(Schema.String),
    progress: optional(described(Finite, "1 is all of it."))
  }),
  ofTurn("tool_result", "What a tool has given.", { callId: Identifier, result: optional(Json) }),
  ofTurn("tool_error", "A tool has failed.", {
    callId: Identifier,
    code: optional(Schema.String),
    message: Schema.String
  }),
  ofTurn("question_requested", "The agent asks something; `answer` answers.", {
    requestId: Identifier,
    question: Schema.String,
    options: optional(described(Schema.Array(Json), "What may be answered, where there is a choice."))
  }),
  ofTurn("question_resolved", "A question is answered, by whomever.", {
    requestId: Identifier,
    answer: optional(Json)
  }),
  ofTurn("approval_requested", "The agent asks for leave; `answer` gives or denies it.", {
    requestId: Identifier,
    action: Schema.String,
    description: optional(Schema.String),
    details: optional(described(Json, "What the action would be done with."))
  }),
  ofTurn("approval_resolved", "Leave is given or denied, by whomever.", {
    requestId: Identifier,
    approved: Schema.Boolean,
    reason: optional(Schema.String)
  }),
  ofTurn("terminal_opened", "A terminal is open.", {
    terminalId: Identifier,
    command: optional(Schema.String),
    cwd: optional(Schema.String)
  }),
  ofTurn("terminal_output", "A terminal printed something.", {
    terminalId: Identifier,
    stream: optional(described(Schema.String, "`stdout` or `stderr`, where they are told apart.")),
    text: Schema.String
  }),
  ofTurn("terminal_exited", "A terminal's process has ended.", {
    terminalId: Identifier,
    exitCode: optional(described(Integer, "Absent where a signal ended it.")),
    signal: optional(Schema.String)
  }),
  ofTurn("file_changed", "A file of the workspace has changed.", {
    change: Schema.Literal("created", "modified", "deleted", "renamed"),
    path: Path,
    previousPath: optional(described(Path, "Where a renamed file was before.")),
    iteration: optional(Count),
    size: optional(described(Count, "Bytes of the content.")),
    hash: optional(Schema.String)
  }),
  ofTurn("plan_updated", "The agent has a plan, or another one.", { plan: Json }),
  ofTurn("step_started", "A step of the plan begins.", { stepId: Identifier, title: optional(Schema.String) }),
  ofTurn("step_completed", "A step of the plan is over.", {
    stepId: Identifier,
    title: optional(Schema.String),
    status: optional(Schema.String)
  }),
  ofTurn("subagent_started", "Another agent begins to work for this one.", {
    subagentId: Identifier,
    agentType: optional(Schema.String),
    task: optional(Schema.String)
  }),
  ofTurn("subagent_completed", "Another agent is done.", {
    subagentId: Identifier,
    agentType: optional(Schema.String),
    result: optional(Json)
  }),
  ofTurn("artifact_created", "The agent has made something to keep.", {
    artifactId: Identifier,
    name: optional(Name),
    mimeType: optional(Schema.String),
    uri: optional(Schema.String)
  }),
  ofTurn("checkpoint_created", "A state to which one can come back.", {
    checkpointId: Identifier,
    label: optional(Schema.String)
  }),
  ofTurn("state_snapshot", "The agent's state as a whole.", { state: Json }),
  ofTurn("state_delta", "A change of the agent's state, usually as JSON Patch (RFC 6902).", { patch: Json }),
  ofTurn("usage_update", "What the agent has used up, as the platform counts it.", {
    inputTokens: optional(Count),
    outputTokens: optional(Count),
    totalTokens: optional(Count),
    cacheReadTokens: optional(Count),
    cacheWriteTokens: optional(Count),
    costUsd: optional(Finite.pipe(Schema.nonNegative())),
    model: optional(Schema.String)
  }),
  ofTurn("usage_context", "How much of the model's context window is used.", {
    used: described(Count, "Tokens."),
    limit: described(Integer.pipe(Schema.positive()), "Tokens."),
    percent: described(
      Finite.pipe(Schema.nonNegative()),
      "Of `limit`, with two decimals; over 100 where the platform says so."
    )
  }),
  ofTurn("rate_limited", "The agent has to wait for its model or a tool.", {
    message: optional(Schema.String),
    retryAfterMs: optional(Count)
  }),
  ofTurn("error", "The agent or its instance met an error; it ends no turn.", {
    code: Schema.String,
    message: Schema.String,
    retryable: Schema.Boolean
  })
)

export type EventBody = (typeof EventBody)["Type"]

export type EventType = EventBody["type"]

export type EventBodyOf<Type extends EventType> = Extract<EventBody, { readonly type: Type }>

/** An event as clients get it. */
export const Event = Schema.extend(EventBody, Envelope)

/** An event as clients get it; it travels as it is. */
export type Event = Envelope & EventBody

export type EventOf<Type extends EventType> = Envelope & EventBodyOf<Type>

export const eventTypes: ReadonlyArray<EventType> = EventBody.members.map(({ fields }) => fields.type.literals[0])

/** The three events that end a turn. */
export const turnEnds = [
  "turn_completed",
  "turn_errored",
  "turn_interrupted"
] as const satisfies ReadonlyArray<EventType>

export type TurnEnd = EventBodyOf<(typeof turnEnds)[number]>

/**
 * Puts a body into its envelope. In its text, `type` comes first.
 *
 * `{ ...body, sessionId: … }` would leave a hidden class of a kilobyte in V8's old space for each event.
 */
export const event = (envelope: Envelope, body: EventBody): Event => Object.assign({}, body, envelope)
