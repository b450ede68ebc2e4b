/** The requests of an agent that persons answer: questions, and requests for approval. Pure. */
import { isObject } from "../../base/Json/Parsing.ts"
import type { AgentMessage, Conversation, Part, RequestPart } from "../../Client/Conversation/Conversation.ts"

const isRequest = (part: Part): part is RequestPart => part.type === "question" || part.type === "approval"

/** Whether a part waits for a person. */
export const isPending = (part: Part): part is RequestPart => isRequest(part) && part.status === "pending"

/** The requests of a conversation, the oldest first, each with its message. */
export const requestsIn = ({ messages }: Conversation): ReadonlyArray<readonly [AgentMessage, RequestPart]> =>
  messages.flatMap(message =>
    message.role === "agent" ? message.parts.filter(isRequest).map(part => [message, part] as const) : []
  )

/** The requests that wait for a person, the oldest first: those of a turn and those of none, or all. */
export const waitingIn = (conversation: Conversation, turnId?: string): ReadonlyArray<RequestPart> =>
  conversation.waiting.length === 0
    ? []
    : requestsIn(conversation)
        .filter(([of]) => turnId === undefined || of.turnId === undefined || of.turnId === turnId)
        .map(([, part]) => part)
        .filter(isPending)

/** The id of the call that a request for approval names. */
export const callOf = ({ details }: RequestPart): string | undefined => {
  const id = isObject(details) ? (details.toolCallId ?? details.callId) : undefined
  return typeof id === "string" ? id : undefined
}
