/** The events that subscribers of a session get, without the envelope that all of them have. */
import { Schema } from "effect"
import {
  ClientMessageId,
  Count,
  described,
  Finite,
  Identifier,
  Integer,
  Name,
  optional,
  Path,
  schemaName
} from "./Fields.ts"
import { Json } from "./Json.ts"
import { SessionState as State } from "./Session.ts"

/** The body of an event: what it says beside its envelope. */
const body = <Type extends string, Fields extends Schema.Struct.Fields>(
  type: Type,
  description: string,
  fields: Fields
) =>
  Schema.Struct({ type: Schema.Literal(type), ...fields }).annotations({
    identifier: schemaName(type, "Event"),
    description
  })

/** Most events belong to a turn, and name it where the agent says so. */
const turn = { turnId: optional(Identifier) }

export const SessionState = body(
  "session_state",
  "The session has come into another state, or its instance says that it is starting, ready or stopping; the session itself takes messages then as before.",
  {
    state: State,
    reason: optional(Schema.String)
  }
)

export const TurnStarted = body(
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
)

export const TurnCompleted = body("turn_completed", "A turn has ended as it should.", { turnId: Identifier })

export const TurnErrored = body("turn_errored", "A turn has failed.", {
  turnId: Identifier,
  code: described(Schema.String, "The platform's own code, or one of the gateway's."),
  message: Schema.String,
  retryable: described(Schema.Boolean, "Whether sending the message again may help.")
})

export const TurnInterrupted = body("turn_interrupted", "A turn was ended before its time.", {
  turnId: Identifier,
  reason: optional(Schema.String)
})

export const ErrorEvent = body("error", "The agent or its instance met an error; it ends no turn.", {
  ...turn,
  code: Schema.String,
  message: Schema.String,
  retryable: Schema.Boolean
})

export const RateLimited = body("rate_limited", "The agent has to wait for its model or a tool.", {
  ...turn,
  message: optional(Schema.String),
  retryAfterMs: optional(Count)
})

export const UsageUpdate = body("usage_update", "What the agent has used up, as the platform counts it.", {
  ...turn,
  inputTokens: optional(Count),
  outputTokens: optional(Count),
  totalTokens: optional(Count),
  cacheReadTokens: optional(Count),
  cacheWriteTokens: optional(Count),
  costUsd: optional(Finite.pipe(Schema.nonNegative())),
  model: optional(Schema.String)
})

export const UsageContext = body("usage_context", "How much of the model's context window is used.", {
  ...turn,
  used: described(Count, "Tokens."),
  limit: described(Integer.pipe(Schema.positive()), "Tokens."),
  percent: described(
    Finite.pipe(Schema.nonNegative()),
    "Of `limit`, with two decimals; over 100 where the platform says so."
  )
})

export const TextStart = body("text_start", "A message of the agent begins.", {
  ...turn,
  messageId: Identifier,
  role: optional(Schema.String)
})

export const TextDelta = body("text_delta", "A piece of a message.", {
  ...turn,
  messageId: optional(described(Identifier, "Absent where the text came in an event that the gateway does not know.")),
  text: Schema.String
})

export const TextEnd = body("text_end", "A message has ended.", {
  ...turn,
  messageId: Identifier,
  text: optional(described(Schema.String, "The message as a whole, where the platform repeats it."))
})

export const ThinkingStart = body("thinking_start", "The agent begins to think.", { ...turn, thinkingId: Identifier })

export const ThinkingDelta = body("thinking_delta", "A piece of a thought.", {
  ...turn,
  thinkingId: Identifier,
  text: Schema.String
})

export const ThinkingEnd = body("thinking_end", "A thought has ended.", {
  ...turn,
  thinkingId: Identifier,
  text: optional(described(Schema.String, "The thought as a whole, where the platform repeats it."))
})

export const ToolCallStart = body("tool_call_start", "The agent begins to write a call of a tool.", {
  ...turn,
  callId: Identifier,
  name: Name
})

export const ToolCallDelta = body("tool_call_delta", "A piece of a call's arguments, as JSON text.", {
  ...turn,
  callId: Identifier,
  text: Schema.String
})

export const ToolCall = body("tool_call", "The agent calls a tool.", {
  ...turn,
  callId: Identifier,
  name: Name,
  args: optional(Json)
})

export const ToolProgress = body("tool_progress", "How far a tool has come.", {
  ...turn,
  callId: Identifier,
  message: optional(Schema.String),
  progress: optional(described(Finite, "1 is all of it."))
})

export const ToolResult = body("tool_result", "What a tool has given.", {
  ...turn,
  callId: Identifier,
  result: optional(Json)
})

export const ToolError = body("tool_error", "A tool has failed.", {
  ...turn,
  callId: Identifier,
  code: optional(Schema.String),
  message: Schema.String
})

export const QuestionRequested = body("question_requested", "The agent asks something; `answer` answers.", {
  ...turn,
  requestId: Identifier,
  question: Schema.String,
  options: optional(described(Schema.Array(Json), "What may be answered, where there is a choice."))
})

export const QuestionResolved = body("question_resolved", "A question is answered, by whomever.", {
  ...turn,
  requestId: Identifier,
  answer: optional(Json)
})

export const ApprovalRequested = body("approval_requested", "The agent asks for leave; `answer` gives or denies it.", {
  ...turn,
  requestId: Identifier,
  action: Schema.String,
  description: optional(Schema.String),
  details: optional(described(Json, "What the action would be done with."))
})

export const ApprovalResolved = body("approval_resolved", "Leave is given or denied, by whomever.", {
  ...turn,
  requestId: Identifier,
  approved: Schema.Boolean,
  reason: optional(Schema.String)
})

export const TerminalOpened = body("terminal_opened", "A terminal is open.", {
  ...turn,
  terminalId: Identifier,
  command: optional(Schema.String),
  cwd: optional(Schema.String)
})

export const TerminalOutput = body("terminal_output", "A terminal printed something.", {
  ...turn,
  terminalId: Identifier,
  stream: optional(described(Schema.String, "`stdout` or `stderr`, where they are told apart.")),
  text: Schema.String
})

export const TerminalExited = body("terminal_exited", "A terminal's process has ended.", {
  ...turn,
  terminalId: Identifier,
  exitCode: optional(described(Integer, "Absent where a signal ended it.")),
  signal: optional(Schema.String)
})

export const FileChanged = body("file_changed", "A file of the workspace has changed.", {
  ...turn,
  change: Schema.Literal("created", "modified", "deleted", "renamed"),
  path: Path,
  previousPath: optional(described(Path, "Where a renamed file was before.")),
  iteration: optional(Count),
  size: optional(described(Count, "Bytes of the content.")),
  hash: optional(Schema.String)
})

export const PlanUpdated = body("plan_updated", "The agent has a plan, or another one.", { ...turn, plan: Json })

export const StepStarted = body("step_started", "A step of the plan begins.", {
  ...turn,
  stepId: Identifier,
  title: optional(Schema.String)
})

export const StepCompleted = body("step_completed", "A step of the plan is over.", {
  ...turn,
  stepId: Identifier,
  title: optional(Schema.String),
  status: optional(Schema.String)
})

export const SubagentStarted = body("subagent_started", "Another agent begins to work for this one.", {
  ...turn,
  subagentId: Identifier,
  agentType: optional(Schema.String),
  task: optional(Schema.String)
})

export const SubagentCompleted = body("subagent_completed", "Another agent is done.", {
  ...turn,
  subagentId: Identifier,
  agentType: optional(Schema.String),
  result: optional(Json)
})

export const ArtifactCreated = body("artifact_created", "The agent has made something to keep.", {
  ...turn,
  artifactId: Identifier,
  name: optional(Name),
  mimeType: optional(Schema.String),
  uri: optional(Schema.String)
})

export const CheckpointCreated = body("checkpoint_created", "A state to which one can come back.", {
  ...turn,
  checkpointId: Identifier,
  label: optional(Schema.String)
})

export const StateSnapshot = body("state_snapshot", "The agent's state as a whole.", { ...turn, state: Json })

export const StateDelta = body("state_delta", "A change of the agent's state, usually as JSON Patch (RFC 6902).", {
  ...turn,
  patch: Json
})
