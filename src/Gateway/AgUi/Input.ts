/** What a client sends for a run: the input of AG-UI. */
import { Schema } from "effect"
import { clientMembers, maybe } from "../../AgUi/Protocol.ts"
import { ClientMessageId, described, Json, optional } from "../Protocol/Fields.ts"

/** A name of a client. */
export const ThreadId = described(
  ClientMessageId,
  "The thread: a session of the tenant, which is made when the name is first used."
)
export const RunId = described(ClientMessageId, "The run. The same one again attaches to it.")

/** A message, as far as it is read. Those of the roles `system` and `developer` are passed to the agent whole. */
const Message = Schema.Struct(
  {
    ...clientMembers,
    id: described(ClientMessageId, "Unique in the thread."),
    role: Schema.Literal("user", "assistant", "system", "developer", "tool", "reasoning", "activity"),
    content: maybe(Json),
    name: maybe(Schema.String),
    error: maybe(Schema.String)
  },
  { key: Schema.String, value: Schema.Unknown }
)

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
