/** The contract of chats for clients of the AI SDK: over HTTP, and the frames of its WebSocket. */
import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as HttpApiSchema from "@effect/platform/HttpApiSchema"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { Forbidden, PayloadTooLarge, Unauthorized } from "../../Http/ApiError.ts"
import { HistoryBody, Part, RouteKind } from "../../Http/Contract.ts"
import { CallErrors, EventStreamText, GatewayAccess, HandshakeHeaders, ServerErrors } from "../Api.ts"
import { ClientMessageId, described, Name, optional } from "../Protocol/Fields.ts"
import * as Description from "./Description.ts"

/** The id of a chat has the limits of a message's id. */
const ChatId = described(
  ClientMessageId,
  "Chosen by the client: 1 to 256 characters. It names a session of the tenant, which is created on first use. The id of a session names that session."
)

const Message = Schema.Struct({
  id: ClientMessageId,
  role: Schema.Literal("system", "user", "assistant"),
  parts: Schema.Array(Schema.Record({ key: Schema.String, value: Schema.Unknown }))
})

/** The members of a submission. Others, such as those of the `body` of a transport, are ignored. */
const submission = {
  id: ChatId,
  messages: described(
    Schema.Array(Message),
    "The messages of the chat. Only what ends them is read: the new messages of a user, or the agent's with approvals."
  ),
  trigger: optional(Schema.Literal("submit-message", "regenerate-message")),
  messageId: optional(
    described(
      Schema.String,
      "The message that is read instead of the last one, as where an approval is answered later."
    )
  )
}

export const SubmissionBody = Schema.Struct(submission).annotations({ identifier: "ChatSubmission" })

const requestId = described(ClientMessageId, "Chosen by the client, for the frames that answer this one.")

/** A frame of a client on the WebSocket. */
export const ChatFrame = Schema.Union(
  Schema.Struct({ type: Schema.Literal("send"), requestId, ...submission }),
  Schema.Struct({ type: Schema.Literal("resume"), requestId, id: ChatId }),
  Schema.Struct({ type: Schema.Literal("abort"), requestId })
)
export type ChatFrame = (typeof ChatFrame)["Type"]

const UiMessages = Schema.Array(
  Schema.Unknown.annotations({
    identifier: "UIMessage",
    jsonSchema: { type: "object", description: "A `UIMessage` of the AI SDK." }
  })
)

const MessageStream = EventStreamText.annotations({ description: "A UI message stream (version 1)." })

const empty = (description: string) => HttpApiSchema.Empty(204).annotations({ description })

const Agent = Schema.Struct({ agentType: Name })

const Chat = Schema.Struct({ agentType: Name, id: ChatId })

/** Chats, under any prefix. */
export const ChatRoutes = HttpApiGroup.make("chat")
  .add(
    HttpApiEndpoint.post("send", "/chat/:agentType")
      .setPath(Agent)
      .setPayload(SubmissionBody)
      .addSuccess(MessageStream)
      .addError(PayloadTooLarge.Wire)
      .middleware(HistoryBody)
      .annotate(OpenApi.Transform, Description.send)
      .annotate(RouteKind, "stream")
  )
  .add(
    HttpApiEndpoint.get("resume", "/chat/:agentType/:id/stream")
      .setPath(Chat)
      .addSuccess(MessageStream)
      .addSuccess(empty("No turn is in progress."))
      .annotate(OpenApi.Transform, Description.resume)
      .annotate(RouteKind, "stream")
  )
  .add(
    HttpApiEndpoint.del("stop", "/chat/:agentType/:id/stream")
      .setPath(Chat)
      .addSuccess(empty("No turn is in progress, or it was asked to stop."))
      .annotate(OpenApi.Transform, Description.stop)
  )
  .add(
    HttpApiEndpoint.get("messages", "/chat/:agentType/:id/messages")
      .setPath(Chat)
      .addSuccess(UiMessages)
      .annotate(OpenApi.Transform, Description.messages)
  )
  .middlewareEndpoints(GatewayAccess)
  .addError(CallErrors)
  .add(
    HttpApiEndpoint.get("connect", "/chat/:agentType/ws")
      .setPath(Agent)
      .setHeaders(HandshakeHeaders)
      .addSuccess(HttpApiSchema.Empty(101).annotations({ description: "The connection is a WebSocket now." }))
      .addError(Unauthorized.Wire)
      .addError(Forbidden.Wire)
      .annotate(OpenApi.Transform, Description.connect)
      .annotate(RouteKind, "stream")
  )
  .addError(ServerErrors)
  .annotate(Part, "chat")
  .annotate(OpenApi.Title, "Chats")
  .annotate(OpenApi.Description, "Sessions as chats for clients of the AI SDK, such as `useChat`.")

/** The same under `/api/v1`. */
export const ChatGroup = ChatRoutes.prefix("/api/v1")
