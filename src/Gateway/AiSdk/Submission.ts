/** What a client that sends messages wants: a new turn, an answer to the agent, or the stream of a turn. Pure. */
import type { AgentMessage, Conversation, RequestPart } from "../../Client/Conversation/Conversation.ts"
import {
  conflict,
  invalid,
  type Plan as PlanOf,
  type Refusal,
  type Reply,
  type Target as Turn
} from "../Streams/Plan.ts"
import type { Decision } from "./MessageStream.ts"
import { answerIdOf, answerText, Parts, type Shown, segmentsOf, type UiPart, userIdOf } from "./UiMessage.ts"

/** A message as a client sends it. */
export interface ClientMessage {
  readonly id: string
  readonly role: "system" | "user" | "assistant"
  readonly parts: ReadonlyArray<Readonly<Record<string, unknown>>>
}

/** What a client sends. */
export interface Submission {
  readonly messages: ReadonlyArray<ClientMessage>
  readonly trigger?: "submit-message" | "regenerate-message" | undefined
  /** The message that is sent or continued; by default the last one. */
  readonly messageId?: string | null | undefined
}

/** The message of a turn that a client gets. */
export interface Target extends Turn {
  /** Only what follows the question with this `seq`. */
  readonly after?: number
  /** What the client's user has decided, by the `seq` of the request. */
  readonly decisions?: ReadonlyMap<number, Decision>
  /** The parts of the message that the client has. */
  readonly client?: ReadonlyArray<UiPart>
}

type Plan = PlanOf<Target>

const quoted = (text: string): string => JSON.stringify(text.slice(0, 64))

/** The text of a user's message, or why it cannot be sent. The platform takes text alone. */
const textOf = ({ parts }: ClientMessage, place: string): string | Refusal => {
  const texts: Array<string> = []
  for (const [index, { text, type }] of parts.entries()) {
    if (type !== "text" || typeof text !== "string") {
      const named = typeof type === "string" ? quoted(type) : "no type"
      return invalid(`${place}.parts[${index}]: a part of type ${named} cannot be sent to the agent, which takes text`)
    }
    texts.push(text)
  }
  const text = texts.join("\n")
  return text === "" ? invalid(`${place}: must have a text`) : text
}

const agentMessages = ({ messages }: Conversation): ReadonlyArray<AgentMessage> =>
  messages.filter(message => message.role === "agent")

/** A message of a user that the conversation has. */
interface Known {
  readonly text: string
  readonly turnId: string | undefined
}

/** The answered questions of a conversation, the newest first. */
const answered = (conversation: Conversation): ReadonlyArray<readonly [AgentMessage, RequestPart]> =>
  agentMessages(conversation)
    .flatMap(message =>
      message.parts.flatMap(part =>
        part.type === "question" && part.status === "answered" ? [[message, part] as const] : []
      )
    )
    .reverse()

const knownMessage = (conversation: Conversation, id: string): Known | undefined => {
  for (const message of conversation.messages) {
    if (message.role === "user" && userIdOf(message) === id) return message
  }
  for (const [message, question] of answered(conversation)) {
    if (answerIdOf(message, question) === id) return { text: answerText(question.answer), turnId: message.turnId }
  }
  return undefined
}

/**
 * The answers that a message may have been, the newest first: questions keep no id of the message that answered them. The
 * receipt of an answer says whether it was.
 */
const earlierAnswers = (conversation: Conversation, text: string, clientMessageId: string) =>
  answered(conversation)
    .flatMap(([{ turnId }, { answer, requestId, seq }]) =>
      answer === text && turnId !== undefined
        ? [{ reply: { requestId, answer, clientMessageId }, target: { turnId, after: seq } }]
        : []
    )
    .slice(0, 8)

const userPlan = (conversation: Conversation, { messages, trigger }: Submission, index: number): Plan => {
  const last = messages[index]!
  const text = textOf(last, `messages[${index}]`)
  if (typeof text !== "string") return text
  const { id } = last
  const known = knownMessage(conversation, id)
  if (known !== undefined) {
    if (known.text !== text) {
      return conflict(`The message ${quoted(id)} was sent with another text, and a history is not rewritten`)
    }
    const turn = agentMessages(conversation).find(({ turnId }) => turnId !== undefined && turnId === known.turnId)
    if (turn === undefined) return conflict(`The answer to the message ${quoted(id)} is no longer kept`)
    if (trigger === "regenerate-message" && turn.status !== "running") {
      return conflict(
        `The message ${quoted(id)} was answered, and a history is not rewritten: send it as a new message`
      )
    }
    return { is: "attach", target: { turnId: turn.turnId! } }
  }
  for (const message of agentMessages(conversation)) {
    for (const part of message.parts) {
      if (part.type !== "question" || part.status !== "pending" || message.turnId === undefined) continue
      const reply = { requestId: part.requestId, answer: text, clientMessageId: id }
      return { is: "answer", replies: [reply], target: { turnId: message.turnId, after: part.seq } }
    }
  }
  return conversation.waiting.length > 0
    ? conflict("The agent waits for an approval: answer it first")
    : { is: "send", content: text, clientMessageId: id, earlier: earlierAnswers(conversation, text, id) }
}

/** What the client's user has decided, by the id of the approval. */
const decisionsIn = ({ parts }: ClientMessage): ReadonlyMap<string, Decision> => {
  const decisions = new Map<string, Decision>()
  for (const { approval } of parts) {
    if (typeof approval !== "object" || approval === null) continue
    const { approved, id, reason } = approval as Readonly<Record<string, unknown>>
    if (typeof id !== "string" || typeof approved !== "boolean") continue
    decisions.set(id, typeof reason === "string" ? { approved, reason } : { approved })
  }
  return decisions
}

const replyOf = ({ requestId }: RequestPart, { approved, reason }: Decision): Reply => ({
  requestId,
  answer: reason === undefined ? approved : { approved, reason }
})

const assistantPlan = (conversation: Conversation, { trigger }: Submission, last: ClientMessage): Plan => {
  if (trigger === "regenerate-message") return conflict("A history is not rewritten: send a new message")
  const message = agentMessages(conversation).find(each => segmentsOf(each).some(({ id }) => id === last.id))
  const segment = message && segmentsOf(message).at(-1)!
  if (message?.turnId === undefined || segment === undefined) {
    return conflict(`The message ${quoted(last.id)} is not known`)
  }
  if (segment.id !== last.id) return conflict(`The message ${quoted(last.id)} was followed by another one`)
  const parts = new Parts()
  const shown = new Set<Shown>()
  for (const part of message.parts.slice(segment.from)) shown.add(parts.add(part))
  const decided = decisionsIn(last)
  const decisions = new Map<number, Decision>()
  const replies: Array<Reply> = []
  for (const { approvalId, request } of shown) {
    const decision = request && decided.get(approvalId)
    if (decision === undefined || request!.status === "expired") continue
    if (request!.status === "answered" && request!.approved !== decision.approved) {
      return conflict(`The approval ${quoted(approvalId)} was ${request!.approved ? "granted" : "denied"} before`)
    }
    decisions.set(request!.seq, decision)
    if (request!.status === "pending") replies.push(replyOf(request!, decision))
  }
  const target = { turnId: message.turnId, decisions, client: last.parts as unknown as ReadonlyArray<UiPart> }
  return replies.length === 0 ? { is: "attach", target } : { is: "answer", replies, target }
}

/**
 * The message that is sent or continued. The package names an earlier one where its approval is answered although other
 * messages follow, which this service has refused.
 */
const subjectOf = ({ messageId, messages, trigger }: Submission): number =>
  typeof messageId !== "string" || trigger === "regenerate-message"
    ? messages.length - 1
    : messages.findLastIndex(({ id }) => id === messageId)

/** What is to be done for a submission. */
export const planOf = (conversation: Conversation, submission: Submission): Plan => {
  const { messages } = submission
  if (messages.length === 0) return invalid("messages: must not be empty")
  const index = subjectOf(submission)
  switch (messages[index]?.role) {
    case undefined:
      return invalid("messageId: must be the id of one of the messages")
    case "user":
      return userPlan(conversation, submission, index)
    case "assistant":
      return assistantPlan(conversation, submission, messages[index]!)
    default:
      return invalid(`messages[${index}].role: must be user or assistant`)
  }
}
