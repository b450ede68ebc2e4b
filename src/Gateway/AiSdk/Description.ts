/** The documentation of chats in the OpenAPI document: summaries, headers and examples. */
import { type Details, operation } from "../../Http/OpenApi/Describe.ts"
import { eventStreamOf, errors as shared } from "../Streams/Description.ts"

const turn = { createdAt: 1767225600000, turnId: "turn-5d0c2f6a9b1e4c7d8a3f5e6b7c8d9e0f" }

const user = { id: "msg-1", role: "user", parts: [{ type: "text", text: "Why does the build fail?" }] }

const message = {
  ...{ id: turn.turnId, role: "assistant", metadata: { ...turn, status: "completed" } },
  parts: [{ type: "text", text: "A test fails.", state: "done" }]
}

const stream = {
  description: "The agent's message. It ends when the turn ends, or asks a person.",
  headers: {
    "x-vercel-ai-ui-message-stream": {
      description: "The version of the stream.",
      required: true,
      schema: { type: "string" as const },
      example: "v1"
    }
  },
  example: eventStreamOf(
    { type: "start", messageId: turn.turnId, messageMetadata: turn },
    { type: "text-start", id: "7" },
    { type: "text-delta", id: "7", delta: "A test fails." },
    { type: "text-end", id: "7" },
    { type: "message-metadata", messageMetadata: { status: "completed" } },
    { type: "finish", finishReason: "stop" },
    "[DONE]"
  )
}

const errors = {
  ...shared,
  400: { example: { error: "Invalid request: id: has 257 characters; the limit is 256" } },
  404: { description: "The chat was deleted.", example: { error: 'There is no session "chat-1"' } },
  409: {
    description: "The chat is with an agent of another type.",
    example: { error: 'The session "chat-1" is with an agent of another type' },
    headers: {}
  }
}

/** An operation without a body. */
const withoutBody = ({ answers, ...details }: Details) =>
  operation({ never: [413], ...details, answers: { ...errors, ...answers } })

export const send = operation({
  operationId: "sendChatMessage",
  summary: "Send a message to a chat",
  description:
    "Starts a turn with the last message, and answers with the agent's message as it is written. Messages before it that were not sent are sent first. The id of a message makes it idempotent: the same id again attaches to its turn. The answer to a question of the agent is the next message. Approvals are answered by the agent's message with them, and the stream continues that message.",
  requests: { message: { summary: "A message", value: { id: "chat-1", messages: [user] } } },
  answers: {
    ...errors,
    200: stream,
    400: {
      example: {
        error:
          'Invalid request: messages[0].parts[1]: a part of type "file" cannot be sent to the agent, which takes text'
      }
    },
    409: {
      description: "A history is not rewritten, or the state of the chat does not allow the message.",
      example: { error: 'The message "msg-1" was sent with another text, and a history is not rewritten' },
      headers: {}
    }
  }
})

export const resume = withoutBody({
  operationId: "resumeChat",
  summary: "Follow the turn in progress",
  description: "Sends the agent's message in progress from its start, and then what is new.",
  answers: { 200: stream }
})

export const stop = withoutBody({
  operationId: "stopChat",
  summary: "Stop the turn in progress",
  description: "Interrupts the agent. To end the request of a stream does not.",
  never: [404, 413]
})

export const messages = withoutBody({
  operationId: "listChatMessages",
  summary: "Read the messages of a chat",
  description: "The messages that are kept, for `messages` of `useChat`. None if the chat was never used.",
  answers: { 200: { description: "The messages.", example: [user, message] } }
})

export const connect = withoutBody({
  operationId: "openChatSocket",
  security: [{ jwt: [] }],
  summary: "Follow chats by WebSocket",
  description:
    "Speaks the frames of `WebSocketChatTransport`: `send`, `resume` and `abort`, answered by `start`, `chunk`, `end`, `no-active` and `error`. `abort` stops the turn unless the chat is resumed within a second. A browser sends the token as a subprotocol: `causeway.v1, bearer.<token>`. The close codes are those of the gateway's WebSocket, such as 4501 when the token has expired.",
  answers: {
    400: { example: { error: "Invalid request: agentType: has 257 characters; the limit is 256" } },
    500: {
      description: "The WebSocket upgrade failed, or a defect of the service.",
      example: { error: "WebSocket upgrade failed: the request is not a WebSocket handshake" }
    }
  },
  never: [404, 409, 413, 502, 504]
})
