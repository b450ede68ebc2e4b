/** Events of what an agent says, thinks, asks and calls. */
import { Schema } from "effect"
import { described, Finite, Identifier, Name, optional } from "../Fields.ts"
import { Json } from "../Json.ts"
import { body, turn } from "./Body.ts"

/** A message of the agent begins. */
export const TextStart = body("text_start", "A message of the agent begins.", {
  ...turn,
  messageId: Identifier,
  role: optional(Schema.String)
})

/** A piece of a message. */
export const TextDelta = body("text_delta", "A piece of a message.", {
  ...turn,
  messageId: optional(described(Identifier, "Absent where the text came in an event that the gateway does not know.")),
  text: Schema.String
})

/** A message has ended. */
export const TextEnd = body("text_end", "A message has ended.", {
  ...turn,
  messageId: Identifier,
  text: optional(described(Schema.String, "The message as a whole, where the platform repeats it."))
})

/** The agent begins to think. */
export const ThinkingStart = body("thinking_start", "The agent begins to think.", { ...turn, thinkingId: Identifier })

/** A piece of a thought. */
export const ThinkingDelta = body("thinking_delta", "A piece of a thought.", {
  ...turn,
  thinkingId: Identifier,
  text: Schema.String
})

/** A thought has ended. */
export const ThinkingEnd = body("thinking_end", "A thought has ended.", {
  ...turn,
  thinkingId: Identifier,
  text: optional(described(Schema.String, "The thought as a whole, where the platform repeats it."))
})

/** The agent begins to write a call of a tool. */
export const ToolCallStart = body("tool_call_start", "The agent begins to write a call of a tool.", {
  ...turn,
  callId: Identifier,
  name: Name
})

/** A piece of a call's arguments, as JSON text. */
export const ToolCallDelta = body("tool_call_delta", "A piece of a call's arguments, as JSON text.", {
  ...turn,
  callId: Identifier,
  text: Schema.String
})

/** The agent calls a tool. */
export const ToolCall = body("tool_call", "The agent calls a tool.", {
  ...turn,
  callId: Identifier,
  name: Name,
  args: optional(Json)
})

/** How far a tool has come. */
export const ToolProgress = body("tool_progress", "How far a tool has come.", {
  ...turn,
  callId: Identifier,
  message: optional(Schema.String),
  progress: optional(described(Finite, "1 is all of it."))
})

/** What a tool has given. */
export const ToolResult = body("tool_result", "What a tool has given.", {
  ...turn,
  callId: Identifier,
  result: optional(Json)
})

/** A tool has failed. */
export const ToolError = body("tool_error", "A tool has failed.", {
  ...turn,
  callId: Identifier,
  code: optional(Schema.String),
  message: Schema.String
})

/** The agent asks something; `answer` with its `requestId` answers. */
export const QuestionRequested = body("question_requested", "The agent asks something; `answer` answers.", {
  ...turn,
  requestId: Identifier,
  question: Schema.String,
  options: optional(described(Schema.Array(Json), "What may be answered, where there is a choice."))
})

/** A question is answered, by whomever. */
export const QuestionResolved = body("question_resolved", "A question is answered, by whomever.", {
  ...turn,
  requestId: Identifier,
  answer: optional(Json)
})

/** The agent asks for leave; `answer` with its `requestId` gives or denies it. */
export const ApprovalRequested = body("approval_requested", "The agent asks for leave; `answer` gives or denies it.", {
  ...turn,
  requestId: Identifier,
  action: Schema.String,
  description: optional(Schema.String),
  details: optional(described(Json, "What the action would be done with."))
})

/** Leave is given or denied, by whomever. */
export const ApprovalResolved = body("approval_resolved", "Leave is given or denied, by whomever.", {
  ...turn,
  requestId: Identifier,
  approved: Schema.Boolean,
  reason: optional(Schema.String)
})
