/** The documentation of sessions over HTTP in the OpenAPI document: summaries, headers and examples. */
import { isObject, type JsonObject } from "../../base/Json/Parsing.ts"
import { type Details, type Header, operation } from "../../Http/OpenApi/Describe.ts"
import { errors as shared } from "../Streams/Description.ts"

/** The example id: a time, and 24 random digits. */
const id = "019b76da80009f86d081884c7d659a2feaa0"

const epoch = "5d0c2f6a9b1e4c7d8a3f5e6b7c8d9e0f"

const session = {
  id,
  tenant: "acme",
  agentType: "coder",
  title: "Fix the build",
  state: "active",
  instanceId: "i_42",
  createdAt: 1767225600000,
  updatedAt: 1767225600000,
  epoch,
  headSeq: 7
}

const event = {
  type: "text_delta",
  turnId: "t_1",
  messageId: "m_1",
  text: "The build",
  sessionId: id,
  seq: 7,
  timestamp: 1767225600000,
  traceId: "4bf92f3577b34da6a3ce929d0e0e4736"
}

const offset = `0000000000000007_${epoch}`

/** An operation whose body may be left out. */
const withOptionalBody =
  (details: Details) =>
  (made: JsonObject): JsonObject => {
    const { requestBody, ...others } = operation(details)(made)
    return isObject(requestBody) ? { ...others, requestBody: { ...requestBody, required: false } } : others
  }

/** Adds the form of an answer that a contract cannot have in addition to JSON. */
const withEventStream =
  (details: Details, schema: JsonObject, example: string) =>
  (made: JsonObject): JsonObject => {
    const described = operation(details)(made)
    const { 200: found, ...responses } = isObject(described.responses) ? described.responses : {}
    if (!isObject(found) || !isObject(found.content)) return described
    const content = { ...found.content, "text/event-stream": { schema, example } }
    return { ...described, responses: { 200: { ...found, content }, ...responses } }
  }

const header = (description: string, example: string, required = false): Header => ({
  description,
  required,
  schema: { type: "string" },
  example
})

const missing = { description: "There is no such session.", example: { error: `There is no session "${id}"` } }

const notNow = (error: string) => ({
  description: "The state of the session does not allow it.",
  // Only a 503 says when to try again.
  headers: undefined,
  example: { error }
})

/** The errors of requests to the agent. */
const errors = { ...shared, 404: missing, 409: notNow("The session has no turn in progress") }

export const create = operation({
  operationId: "createSession",
  summary: "Create a session",
  description: "It is inactive at first. With an `id` of the client's the request can be repeated.",
  requests: { session: { summary: "A session", value: { agentType: "coder", title: "Fix the build" } } },
  answers: {
    ...errors,
    200: { description: "The session with this `id` existed.", example: { session } },
    201: { description: "The session was created.", example: { session } },
    400: { example: { error: "Invalid request: agentType: is missing" } },
    409: { ...notNow("The id is that of a deleted session"), description: "The `id` cannot be used." }
  }
})

export const list = operation({
  operationId: "listSessions",
  summary: "List sessions",
  description: "The sessions of the tenant, the newest first by `createdAt`, then `id`.",
  answers: {
    ...errors,
    200: { description: "A page. It may be short although others follow.", example: { sessions: [session] } },
    400: { example: { error: "Invalid request: limit: must be a whole number from 1 to 200" } }
  },
  never: [413]
})

const withId = { 400: { example: { error: 'Invalid request: id: must be 1 to 128 letters, digits, "_" or "-"' } } }

export const get = operation({
  operationId: "getSession",
  summary: "Read a session",
  description: "Its state and the position of its newest event.",
  answers: { ...errors, ...withId, 200: { description: "The session.", example: { session } } },
  never: [413]
})

export const remove = operation({
  operationId: "deleteSession",
  summary: "Delete a session",
  description: "Stops it, and removes it and its history.",
  answers: { ...errors, ...withId },
  never: [413]
})

export const start = withOptionalBody({
  operationId: "startSession",
  summary: "Start a session",
  description: "The answer comes when the session is active. What the body has replaces what the session had.",
  requests: { secrets: { summary: "With secrets", value: { secrets: { GIT_TOKEN: "a secret" } } } },
  answers: { ...errors, ...withId, 200: { description: "The active session.", example: { session } } }
})

export const stop = operation({
  operationId: "stopSession",
  summary: "Stop a session",
  description: "The answer comes when the session is inactive, after 15 seconds at most.",
  answers: {
    ...errors,
    ...withId,
    200: {
      description: "The inactive session.",
      example: { session: { ...session, state: "inactive", instanceId: null } }
    }
  },
  never: [413]
})

const turn = { description: "The turn.", example: { turnId: "t_1" } }

export const send = operation({
  operationId: "sendMessage",
  summary: "Send a message",
  description: "It starts a turn. A session that is not active is started first.",
  requests: { message: { summary: "A message", value: { content: "Why does the build fail?" } } },
  answers: {
    ...errors,
    200: { ...turn, description: "The turn that the message started." },
    400: { example: { error: "Invalid request: content: must not be empty" } },
    409: notNow("The clientMessageId was used for another message")
  }
})

export const answer = operation({
  operationId: "answerAgent",
  summary: "Answer the agent",
  description: "Answers a question or an approval request of the agent.",
  requests: { answer: { summary: "An answer", value: { requestId: "q_1", answer: "tea" } } },
  answers: { ...errors, 400: { example: { error: "Invalid request: requestId: is missing" } } }
})

export const interrupt = withOptionalBody({
  operationId: "interruptTurn",
  summary: "Interrupt a turn",
  description: "Asks the agent to end a turn, by default the one in progress.",
  requests: { turn: { summary: "A turn", value: { turnId: "t_1" } } },
  answers: { ...errors, ...withId, 200: { ...turn, description: "The turn that is interrupted." } }
})

const conversationTag = header("The epoch of the history and the newest event.", `"${offset}"`, true)

export const conversation = operation({
  operationId: "getConversation",
  summary: "Read the conversation of a session",
  description: "All events that are kept, folded into messages. It is a fraction of the size of the events.",
  answers: {
    ...errors,
    ...withId,
    200: {
      description: "The conversation up to the newest event.",
      headers: { ETag: conversationTag },
      example: { epoch, seq: 7, trimmedSeq: 0 }
    },
    304: { headers: { ETag: conversationTag } }
  },
  never: [413]
})

const streamHeaders = {
  "Stream-Next-Offset": header("The `offset` of the next request.", offset),
  "Stream-Up-To-Date": header("`true` if the answer has the newest event.", "true"),
  "Stream-Closed": header("`true` if the session was deleted while it was read.", "true"),
  "Stream-Cursor": header("The `cursor` of the next request, with `live`.", "3389520")
}

const tagged = { ...streamHeaders, ETag: header("The tag of the answer.", `"${offset}:7"`) }

export const events = withEventStream(
  {
    operationId: "readEvents",
    summary: "Read or follow the events of a session",
    description:
      "The read side of the [Durable Streams protocol](https://github.com/durable-streams/durable-streams/blob/main/PROTOCOL.md), as `@durable-streams/client` speaks it. HEAD answers the position of the newest event. A stream of Server-Sent Events ends after about a minute: continue at its last offset.",
    answers: {
      ...errors,
      200: {
        description: "Events in order, or the stream of them.",
        headers: tagged,
        example: [event]
      },
      204: { description: "No event came while the poll waited.", headers: streamHeaders },
      304: { headers: tagged },
      400: { example: { error: "offset must be -1, now or the offset of an earlier answer" } },
      410: {
        description: "Events after the offset are no longer kept, or it belongs to a history that was lost.",
        example: { error: "Events after this offset are no longer kept; read from -1" }
      }
    },
    never: [413]
  },
  {
    type: "string",
    description: "Server-Sent Events: `data` is a JSON array of events, `control` has the next offset."
  },
  `event: data\ndata: ${JSON.stringify([event])}\n\nevent: control\ndata: {"streamNextOffset":"${offset}","streamCursor":"3389520"}\n\n`
)
