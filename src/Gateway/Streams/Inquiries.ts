/** The requests of an agent that persons answer: questions, and requests for approval. Pure. */
import { isObject } from "../../base/Json/Parsing.ts"
import type { Conversation, Part, RequestPart } from "../../Client/Conversation/Conversation.ts"

export const isRequest = (part: Part): part is RequestPart => part.type === "question" || part.type === "approval"

/** Whether a part waits for a person. */
export const isPending = (part: Part | undefined): part is RequestPart =>
  part !== undefined && isRequest(part) && part.status === "pending"

/** The requests that wait for a person, the oldest first: those of a turn and those of none, or all. */
export const waitingIn = (conversation: Conversation, turnId?: string): ReadonlyArray<RequestPart> =>
  conversation.messages.flatMap(message =>
    message.role === "agent" && (turnId === undefined || message.turnId === undefined || message.turnId === turnId)
      ? message.parts.filter(isPending)
      : []
  )

/** The id of the call that a request for approval names. */
export const callOf = ({ details }: RequestPart): string | undefined => {
  const id = isObject(details) ? (details.toolCallId ?? details.callId) : undefined
  return typeof id === "string" ? id : undefined
}
