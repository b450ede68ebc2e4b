/** What a client that sends messages wants: a new turn, an answer to the agent, or the stream of a turn. Pure. */
import { Either, ParseResult, Schema } from "effect"
import type { Conversation } from "../../Client/Conversation/Conversation.ts"
import { BadRequest } from "../../Http/ApiError.ts"
import { describe } from "../../Http/Contract.ts"
import { isPending, requestsIn } from "../Streams/Inquiries.ts"
import {
  conflict,
  invalid,
  messageOfTurn,
  type Plan as PlanOf,
  type Refusal,
  type Reply,
  sentIn,
  type Target as Turn
} from "../Streams/Plan.ts"
import type { SubmissionBody } from "./Api.ts"
import type { Decision } from "./MessageStream.ts"
import { answerIdOf, answerText, segmentsOf, shownIn, UiPart, userIdOf } from "./UiMessage.ts"

/** What a client sends. */
export type Submission = Omit<typeof SubmissionBody.Type, "id">

/** A message as a client sends it. Its parts are decoded if it is read. */
export type ClientMessage = Submission["messages"][number]

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

/** What is to be done for the next message of a submission. */
export interface Step {
  readonly plan: Plan
  /** The message, by index. */
  readonly index: number
}

/** The step of a submission that was done last, with the question that it answered. */
export interface Done extends Pick<Step, "index">, Pick<Target, "after"> {}

/** Maximum number of new messages in a submission. */
const maxNew = 16

const quoted = (text: string): string => JSON.stringify(text.slice(0, 64))

const readParts = Schema.decodeUnknownEither(Schema.Array(UiPart), { errors: "all" })

/** The parts of a message, or what is wrong with them. */
const partsIn = ({ parts }: ClientMessage, index: number): ReadonlyArray<UiPart> | Refusal => {
  const read = readParts(parts)
  if (Either.isRight(read)) return read.right
  const issues = ParseResult.ArrayFormatter.formatErrorSync(read.left)
  const placed = issues.map(issue => ({ ...issue, path: ["messages", index, "parts", ...issue.path] }))
  return { is: "refused", error: new BadRequest({ error: describe(placed) }) }
}

/** The text of a user's message, or why it cannot be sent. The platform takes text alone. */
const textOf = (message: ClientMessage, index: number): string | Refusal => {
  const parts = partsIn(message, index)
  if ("is" in parts) return parts
  const other = parts.findIndex(({ text, type }) => type !== "text" || text === undefined)
  if (other >= 0) {
    const type = quoted(parts[other]!.type)
    return invalid(
      `messages[${index}].parts[${other}]: a part of type ${type} cannot be sent to the agent, which takes text`
    )
  }
  const text = parts.map(part => part.text).join("\n")
  return text === "" ? invalid(`messages[${index}]: must have a text`) : text
}

/** The answered questions of a conversation, the newest first, as messages of a user. */
const answersIn = (conversation: Conversation) =>
  requestsIn(conversation)
    .filter(([, { status, type }]) => type === "question" && status === "answered")
    .map(([message, question]) => {
      return { id: answerIdOf(message, question), text: answerText(question.answer), turnId: message.turnId, question }
    })
    .reverse()

/** A message of a user that the conversation has, which may be an answer. */
const knownMessage = (conversation: Conversation, id: string) =>
  conversation.messages.filter(message => message.role === "user").find(message => userIdOf(message) === id) ??
  answersIn(conversation).find(answer => answer.id === id)

/**
 * The answers that a message may have been, the newest first: questions keep no id of the message that answered them. The
 * receipt of an answer says whether it was.
 */
const earlierAnswers = (conversation: Conversation, text: string, clientMessageId: string) =>
  answersIn(conversation)
    .flatMap(({ question: { answer, requestId, seq }, turnId }) =>
      answer === text && turnId !== undefined
        ? [{ reply: { requestId, answer, clientMessageId }, target: { turnId, after: seq } }]
        : []
    )
    .slice(0, 8)

/** Joins the turn of a message that the conversation has. */
const joinPlan = (conversation: Conversation, id: string, turnId: string | undefined, isAgain: boolean): Plan => {
  const turn = turnId === undefined ? undefined : messageOfTurn(conversation, turnId)
  if (turnId === undefined || turn === undefined) {
    return conflict(`The answer to the message ${quoted(id)} is no longer kept`)
  }
  return isAgain && turn.status !== "running"
    ? conflict(`The message ${quoted(id)} was answered, and a history is not rewritten: send it as a new message`)
    : { is: "attach", target: { turnId } }
}

/** Sends a new message. It answers the question that waits, unless it follows another new one. */
const sendPlan = (conversation: Conversation, clientMessageId: string, text: string, done: Done | undefined): Plan => {
  const waiting = requestsIn(conversation).filter(([, part]) => isPending(part) && part.seq !== done?.after)
  const question = waiting.find(([{ turnId }, { type }]) => type === "question" && turnId !== undefined)
  if (question !== undefined && done === undefined) {
    const [{ turnId }, { requestId, seq }] = question
    const reply = { requestId, answer: text, clientMessageId }
    return { is: "answer", replies: [reply], target: { turnId: turnId!, after: seq } }
  }
  return waiting.length > 0
    ? conflict(`The agent waits for ${question === undefined ? "an approval" : "an answer"}: answer it first`)
    : { is: "send", content: text, clientMessageId, earlier: earlierAnswers(conversation, text, clientMessageId) }
}

/** The next of the messages of a user that end the submission: the first one after those that the conversation has. */
const userStep = (conversation: Conversation, submission: Submission, last: number, done: Done | undefined): Step => {
  const { messages, trigger } = submission
  const earlier = messages.slice(0, last).findLastIndex(({ role }) => role !== "user")
  let next = Math.max(earlier, done?.index ?? -1) + 1
  let content: string | undefined
  for (let index = next; index <= last; index++) {
    const { id } = messages[index]!
    const text = textOf(messages[index]!, index)
    if (typeof text !== "string") return { index, plan: text }
    const known = knownMessage(conversation, id)
    if (known !== undefined && known.text !== text) {
      const reason = `The message ${quoted(id)} was sent with another text, and a history is not rewritten`
      return { index, plan: conflict(reason) }
    }
    if (known === undefined) content ??= text
    else if (index < last) [next, content] = [index + 1, undefined]
    else return { index, plan: joinPlan(conversation, id, known.turnId, trigger === "regenerate-message") }
  }
  const count = last + 1 - next
  if (count > maxNew) return { index: next, plan: invalid(`messages: ${count} are new; the limit is ${maxNew}`) }
  return { index: next, plan: sendPlan(conversation, messages[next]!.id, content!, done) }
}

const assistantPlan = (conversation: Conversation, { messages, trigger }: Submission, index: number): Plan => {
  const last = messages[index]!
  const client = partsIn(last, index)
  if ("is" in client) return client
  if (trigger === "regenerate-message") return conflict("A history is not rewritten: send a new message")
  const message = conversation.messages
    .filter(each => each.role === "agent")
    .find(each => segmentsOf(each).some(({ id }) => id === last.id))
  const segment = message && segmentsOf(message).at(-1)!
  if (message?.turnId === undefined || segment === undefined) {
    return conflict(`The message ${quoted(last.id)} is not known`)
  }
  if (segment.id !== last.id) return conflict(`The message ${quoted(last.id)} was followed by another one`)
  const requests = new Map(shownIn(message, segment).map(({ approvalId, request }) => [approvalId, request]))
  const decisions = new Map<number, Decision>()
  const replies: Array<Reply> = []
  for (const [at, { approval }] of client.entries()) {
    if (approval?.approved === undefined) continue
    const { approved, id, reason } = approval
    const request = requests.get(id)
    if (request === undefined && conversation.trimmedSeq === 0) {
      return invalid(`messages[${index}].parts[${at}].approval.id: there is no request ${quoted(id)}`)
    }
    if (request === undefined || request.status === "expired") continue
    if (request.status === "answered" && request.approved !== approved) {
      return conflict(`The approval ${quoted(id)} was ${request.approved ? "granted" : "denied"} before`)
    }
    const decision = reason === undefined ? { approved } : { approved, reason }
    decisions.set(request.seq, decision)
    const answer = reason === undefined ? approved : decision
    if (request.status === "pending") replies.push({ requestId: request.requestId, answer })
  }
  const target = { turnId: message.turnId, decisions, client }
  return replies.length === 0 ? { is: "attach", target } : { is: "answer", replies, target }
}

/**
 * The message that a submission ends with, by index: the one that is sent or continued. The package names an earlier one
 * where its approval is answered although other messages follow, which this service has refused.
 */
export const endOf = ({ messageId, messages, trigger }: Submission): number =>
  typeof messageId !== "string" || trigger === "regenerate-message"
    ? messages.length - 1
    : messages.findLastIndex(({ id }) => id === messageId)

/** What is to be done for the next message of a submission. The last one is that with the index {@link endOf}. */
export const stepOf = (conversation: Conversation, submission: Submission, done?: Done): Step => {
  const index = endOf(submission)
  const refused = (error: string): Step => ({ index, plan: invalid(error) })
  if (submission.messages.length === 0) return refused("messages: must not be empty")
  switch (submission.messages[index]?.role) {
    case undefined:
      return refused("messageId: must be the id of one of the messages")
    case "user":
      return userStep(sentIn(conversation), submission, index, done)
    case "assistant":
      return { index, plan: assistantPlan(conversation, submission, index) }
    default:
      return refused(`messages[${index}].role: must be user or assistant`)
  }
}
