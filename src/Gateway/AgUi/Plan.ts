/** What has to be done for a run: what is new in its input, and what the thread allows. Pure. */
import { hash } from "node:crypto"
import { Schema } from "effect"
import * as Messages from "../../AgUi/Messages.ts"
import { type ClientMessage, given } from "../../AgUi/Protocol.ts"
import type { Conversation } from "../../Client/Conversation/Conversation.ts"
import type { ClientRun } from "../Sessions.ts"
import { requestsIn, waitingIn } from "../Streams/Inquiries.ts"
import { conflict, invalid, messageOfTurn, type Plan, type Refusal, type Reply, sentIn } from "../Streams/Plan.ts"
import type { RunAgentInput } from "./Input.ts"

/** What is known of the thread. */
export interface Known {
  readonly conversation: Conversation
  /** The requests that were answered although their resolution has not arrived, by `seq`. */
  readonly answered: ReadonlySet<number>
  /** The run, if it was requested before. */
  readonly run: { readonly digest: string; readonly turnId: string | null } | undefined
}

/** Whether a member of an input says nothing. */
export const isEmpty = (value: unknown): boolean =>
  value === undefined || value === null || (typeof value === "object" && Object.keys(value).length === 0)

/** What the agent gets in addition to the message: the members of the input that are not empty, and who has written it. */
export const inputOf = (input: RunAgentInput, name?: string): unknown => {
  const { context, forwardedProps, messages, state, tools } = input
  const instructions = messages.filter(({ role }) => role === "system" || role === "developer")
  const members = Object.entries({ tools, context, forwardedProps, state, messages: instructions, name })
  const given = members.filter(([, value]) => !isEmpty(value))
  return given.length === 0 ? undefined : Object.fromEntries(given)
}

/** A run, with a digest of what it was requested with. */
const runOf = (input: RunAgentInput, name: string | undefined, ...content: ReadonlyArray<unknown>): ClientRun => {
  const digest = hash("sha256", JSON.stringify(content), "base64url")
  return given<ClientRun>({ id: input.runId, digest, input: inputOf(input, name) } as ClientRun)
}

/** What is new in the messages of a client. */
interface News {
  readonly users: Array<{ readonly id: string; readonly content: string; readonly name: string | undefined }>
  readonly results: Array<Messages.ClientResult>
}

/** The text of a message, or what is wrong with it. */
const textOf = (message: ClientMessage, path: string): string | Refusal => {
  const { content } = message
  const text = Messages.contentOf(message)
  if (text !== undefined) return text
  const at = Array.isArray(content) ? content.findIndex(part => !Messages.isTextPart(part)) : -1
  return invalid(`${path}.content${at < 0 ? "" : `[${at}]`}: must be text, which is all that agents take`)
}

/** Which messages are new is decided by their ids. Where the history has lost its start, what follows them counts too. */
const newsOf = ({ messages }: RunAgentInput, conversation: Conversation): News | Refusal => {
  // Those that are answered, or on their way.
  const all = Messages.messagesOf(sentIn(conversation)) as ReadonlyArray<ClientMessage>
  const known = new Map(all.map(message => [message.id, message]))
  // Answers have ids of ours, perhaps of a history that was lost. Other ids of that form may be a client's.
  const answers = messages.filter(({ role }) => role === "assistant" || role === "reasoning")
  const epochs = new Set([Messages.startOf(conversation.epoch), ...answers.map(({ id }) => Messages.epochOf(id))])
  epochs.delete(undefined)
  const isOld = (id: string) => known.has(id) || epochs.has(Messages.epochOf(id))
  const calls = new Set(all.flatMap(({ toolCalls = [] }) => toolCalls.map(call => call.id)))
  const resolved = new Set(all.flatMap(({ role, toolCallId }) => (role === "tool" ? [toolCallId] : [])))
  const lastOld = messages.findLastIndex(({ id }) => isOld(id))
  const news: News = { users: [], results: [] }
  for (const [index, message] of messages.entries()) {
    const { error, id, name, role, toolCallId } = message
    const path = `messages[${index}]`
    if (role !== "user" && role !== "tool") continue
    const before = role === "user" ? known.get(id) : undefined
    if (before !== undefined && (before.role !== role || before.content !== Messages.contentOf(message))) {
      return conflict(`${path}: the message ${JSON.stringify(id)} has other content, and a history is not rewritten`)
    }
    if (isOld(id) || (conversation.trimmedSeq > 0 && index < lastOld)) continue
    const content = textOf(message, path)
    if (typeof content !== "string") return content
    if (role === "user") {
      if (content === "") return invalid(`${path}.content: must not be empty`)
      news.users.push({ id, content, name })
      continue
    }
    if (toolCallId === undefined) return invalid(`${path}.toolCallId: is missing`)
    if (!calls.has(toolCallId)) return invalid(`${path}.toolCallId: there is no call ${JSON.stringify(toolCallId)}`)
    if (resolved.has(toolCallId)) return conflict(`${path}: the call ${JSON.stringify(toolCallId)} has a result`)
    resolved.add(toolCallId)
    news.results.push({ id, toolCallId, content, ...(error === undefined ? {} : { error }) })
  }
  return news
}

const denied = { approved: false, reason: "cancelled" }

const isDecision = Schema.is(
  Schema.Union(Schema.Boolean, Schema.Struct({ approved: Schema.Boolean, reason: Schema.optional(Schema.String) }))
)

/** What has to be done for a run that answers a person's requests. */
const planAnswers = (input: RunAgentInput, { answered, conversation, run: known }: Known): Plan => {
  const { resume = [] } = input
  const run = runOf(input, undefined, "answers", resume)
  if (known !== undefined && known.digest !== run.digest) {
    return conflict("resume: the run was requested with other content")
  }
  const waiting = waitingIn(conversation)
  const ids = new Set(resume.map(({ interruptId }) => interruptId))
  if (ids.size < resume.length) return invalid("resume: answers a request twice")
  const replies: Array<Reply> = []
  for (const [index, { interruptId, payload = null, status }] of resume.entries()) {
    const request = waiting.find(({ requestId }) => requestId === interruptId)
    if (request === undefined) {
      if (known !== undefined) continue
      return conflict(`resume[${index}].interruptId: no such request waits for an answer`)
    }
    const isQuestion = request.type === "question"
    if (status === "resolved" && !isQuestion && !isDecision(payload)) {
      return invalid(`resume[${index}].payload: must have approved, which is true or false, and perhaps reason, a text`)
    }
    replies.push({ requestId: interruptId, answer: status === "resolved" ? payload : isQuestion ? null : denied })
  }
  const last = waiting.findLastIndex(({ requestId }) => ids.has(requestId))
  // The client may not know of what was asked after that.
  const omitted = waiting.find((request, at) => at < last && !ids.has(request.requestId) && !answered.has(request.seq))
  if (omitted !== undefined) {
    return conflict(`resume: the request ${JSON.stringify(omitted.requestId)} waits for an answer too`)
  }
  const asked = requestsIn(conversation).findLast(([, { requestId }]) => requestId === resume[0]!.interruptId)
  const turnId = known?.turnId ?? (asked && (asked[0].turnId ?? conversation.turns.at(-1)))
  if (turnId === undefined) return conflict("resume: the turn of the request has ended")
  const target = { turnId }
  return replies.length === 0 ? { is: "attach", target } : { is: "answer", replies, target, run }
}

/** What has to be done for a run. */
export const planOf = (input: RunAgentInput, known: Known): Plan => {
  const { answered, conversation, run: before } = known
  const news = newsOf(input, conversation)
  if ("is" in news) return news
  const { results, users } = news
  const [user] = users
  const isNew = users.length + results.length > 0
  if ((input.resume ?? []).length > 0) {
    return isNew ? invalid("messages: a run with resume has no new message") : planAnswers(input, known)
  }
  if (!isNew) {
    if (before === undefined) return invalid("runId: is unknown, and there is no new message and no resume")
    if (before.turnId !== null && messageOfTurn(conversation, before.turnId) !== undefined) {
      return { is: "attach", target: { turnId: before.turnId } }
    }
    // A run is recorded shortly before its message, which may fail.
    return invalid("runId: its message is missing, and was not sent")
  }
  if (user !== undefined && results.length > 0) return invalid("messages: a user's message and a tool's result are new")
  if (users.length > 1) return conflict(`messages: ${users.length} are new, and a run has one`)
  const message =
    user === undefined ? Messages.messageOfResults(results) : { content: user.content, clientMessageId: user.id }
  const run = runOf(input, user?.name, "message", "key" in message ? message.key : message.clientMessageId)
  if (before !== undefined && before.digest !== run.digest) {
    return conflict("messages: the run was requested with another message")
  }
  const waiting = waitingIn(conversation).find(({ seq }) => !answered.has(seq))
  if (waiting !== undefined) {
    return conflict(`resume: is missing, and the request ${JSON.stringify(waiting.requestId)} waits for an answer`)
  }
  return { is: "send", ...message, run }
}
