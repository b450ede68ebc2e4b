/** What a client sends for a run: the input of AG-UI. */
import { Schema } from "effect"
import { ClientMessageId, described, Json, optional } from "../Protocol/Fields.ts"

/** A name of a client. */
export const ThreadId = described(
  ClientMessageId,
  "The thread: a session of the tenant, which is made when the name is first used."
)
export const RunId = described(ClientMessageId, "The run. The same one again attaches to it.")

/** Absent or null. */
const maybe = <A, I>(schema: Schema.Schema<A, I>) => Schema.optionalWith(schema, { nullable: true })

const ToolCall = Schema.Struct({
  id: Schema.String,
  function: Schema.Struct({ name: Schema.String, arguments: Schema.String })
})

/** A message, as far as it is read. */
const Message = Schema.Struct({
  id: described(ClientMessageId, "Unique in the thread."),
  role: Schema.Literal("user", "assistant", "system", "developer", "tool", "reasoning", "activity"),
  content: maybe(Json),
  toolCallId: maybe(Schema.String),
  toolCalls: maybe(Schema.Array(ToolCall))
})

const Resume = Schema.Struct({
  interruptId: Schema.String,
  status: Schema.Literal("resolved", "cancelled"),
  payload: maybe(Json)
})

/** `RunAgentInput` of AG-UI. Unknown members are ignored. */
export const RunAgentInput = Schema.Struct({
  threadId: ThreadId,
  runId: RunId,
  messages: described(
    Schema.Array(Message),
    "The messages that the client has. The new ones are those of unknown ids."
  ),
  tools: maybe(described(Schema.Array(Json), "Passed to the agent.")),
  context: maybe(described(Schema.Array(Json), "Passed to the agent.")),
  forwardedProps: maybe(described(Json, "Passed to the agent.")),
  state: maybe(described(Json, "Passed to the agent.")),
  resume: maybe(described(Schema.Array(Resume), "Answers to all that a person was asked.")),
  protocolVersion: optional(Schema.Unknown),
  parentRunId: optional(Schema.Unknown)
}).annotations({ identifier: "RunAgentInput" })
export type RunAgentInput = typeof RunAgentInput.Type
