/** What has to be done for a run: what is new in its input, and what the thread allows. Pure. */
import { hash } from "node:crypto"
import { Schema } from "effect"
import * as Messages from "../../AgUi/Messages.ts"
import type { ClientMessage } from "../../AgUi/Protocol.ts"
import type { AgentMessage, Conversation } from "../../Client/Conversation/Conversation.ts"
import type { ClientRun } from "../Sessions.ts"
import { isRequest, waitingIn } from "../Streams/Inquiries.ts"
import { conflict, invalid, type Plan, type Refusal, type Reply, sentIn } from "../Streams/Plan.ts"
import type { RunAgentInput } from "./Input.ts"

/** What is known of the thread. */
export interface Known {
  readonly conversation: Conversation
  /** The requests that were answered although their resolution has not arrived, by `seq`. */
  readonly answered: ReadonlySet<number>
  /** The run, if it was requested before. */
  readonly run: { readonly digest: string; readonly turnId: string | null } | undefined
}

const digestOf = (content: unknown): string => hash("sha256", JSON.stringify(content), "base64url")

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

const runOf = (input: RunAgentInput, digest: string, name?: string): ClientRun => {
  const given = inputOf(input, name)
  return { id: input.runId, digest, ...(given === undefined ? {} : { input: given }) }
}

/** The messages by id that are answered, or on their way. */
const knownMessages = (conversation: Conversation): ReadonlyMap<string, ClientMessage> =>
  new Map(Messages.messagesOf(sentIn(conversation)).map(message => [message.id, message]))

/** What is new in the messages of a client. */
interface News {
  readonly users: ReadonlyArray<{ readonly id: string; readonly content: string; readonly name: string | undefined }>
  readonly results: ReadonlyArray<Messages.ClientResult>
}

/** A text of a message, or what is wrong with it. */
const textOf = (message: ClientMessage, path: string): { readonly text: string } | Refusal => {
  const text = Messages.contentOf(message)
  if (text !== undefined) return text === "" ? invalid(`${path}.content: must not be empty`) : { text }
  const at = Array.isArray(message.content) ? message.content.findIndex(part => !Messages.isTextPart(part)) : -1
  return invalid(`${path}.content${at < 0 ? "" : `[${at}]`}: must be text, which is all that agents take`)
}

/** Which messages are new is decided by their ids. Where the history has lost its start, what follows them counts too. */
const newsOf = ({ messages }: RunAgentInput, conversation: Conversation): News | Refusal => {
  const known = knownMessages(conversation)
  // Answers have ids of ours, perhaps of a history that was lost. Other ids of that form may be a client's.
  const answers = messages.filter(({ role }) => role === "assistant" || role === "reasoning")
  const epochs = new Set([Messages.startOf(conversation.epoch), ...answers.map(({ id }) => Messages.epochOf(id))])
  epochs.delete(undefined)
  const isOld = (id: string) => known.has(id) || epochs.has(Messages.epochOf(id))
  const all = [...known.values()]
  const calls = new Set(all.flatMap(({ toolCalls = [] }) => toolCalls.map(call => call.id)))
  const resolved = new Set(all.flatMap(({ role, toolCallId }) => (role === "tool" ? [toolCallId] : [])))
  const lastOld = messages.findLastIndex(({ id }) => isOld(id))
  const users: Array<News["users"][number]> = []
  const results: Array<Messages.ClientResult> = []
  for (const [index, message] of messages.entries()) {
    const { id, role } = message
    const path = `messages[${index}]`
    if (role !== "user" && role !== "tool") continue
    const before = known.get(id)
    if (before !== undefined) {
      if (role === "user" && (before.role !== role || Messages.contentOf(message) !== before.content)) {
        return conflict(`${path}: the message ${JSON.stringify(id)} has other content, and a history is not rewritten`)
      }
      continue
    }
    if (isOld(id) || (conversation.trimmedSeq > 0 && index < lastOld)) continue
    const read = textOf({ ...message, content: message.content ?? "" }, path)
    if (role === "user") {
      if ("is" in read) return read
      users.push({ id, content: read.text, name: message.name })
      continue
    }
    const { toolCallId } = message
    const content = Messages.contentOf(message)
    if (toolCallId === undefined) return invalid(`${path}.toolCallId: is missing`)
    if (content === undefined) return "is" in read ? read : invalid(`${path}.content: must be text`)
    if (!calls.has(toolCallId)) return invalid(`${path}.toolCallId: there is no call ${JSON.stringify(toolCallId)}`)
    if (resolved.has(toolCallId)) {
      return conflict(`${path}: the call ${JSON.stringify(toolCallId)} has a result`)
    }
    resolved.add(toolCallId)
    results.push({ id, toolCallId, content, ...(message.error === undefined ? {} : { error: message.error }) })
  }
  return { users, results }
}

const denied = { approved: false, reason: "cancelled" }

const isDecision = Schema.is(
  Schema.Union(Schema.Boolean, Schema.Struct({ approved: Schema.Boolean, reason: Schema.optional(Schema.String) }))
)

/** What has to be done for a run that answers a person's requests. */
const planAnswers = (input: RunAgentInput, { answered, conversation, run }: Known): Plan => {
  const { resume = [] } = input
  const digest = digestOf(["answers", resume])
  if (run !== undefined && run.digest !== digest) return conflict("resume: the run was requested with other content")
  const waiting = waitingIn(conversation)
  const byId = new Map(waiting.map(request => [request.requestId, request]))
  const ids = new Set(resume.map(({ interruptId }) => interruptId))
  if (ids.size < resume.length) return invalid("resume: answers a request twice")
  const gone = resume.findIndex(({ interruptId }) => !byId.has(interruptId))
  if (gone >= 0 && run === undefined) {
    return conflict(`resume[${gone}].interruptId: no such request waits for an answer`)
  }
  const last = waiting.findLastIndex(({ requestId }) => ids.has(requestId))
  // The client may not know of what was asked after that.
  const omitted = waiting.find((request, at) => at < last && !ids.has(request.requestId) && !answered.has(request.seq))
  if (omitted !== undefined) {
    return conflict(`resume: the request ${JSON.stringify(omitted.requestId)} waits for an answer too`)
  }
  const asking = conversation.messages.findLast(
    (message): message is AgentMessage =>
      message.role === "agent" &&
      message.parts.some(part => isRequest(part) && part.requestId === resume[0]!.interruptId)
  )
  const turnId = run?.turnId ?? asking?.turnId ?? (asking && conversation.turns.at(-1))
  if (turnId === undefined) return conflict("resume: the turn of the request has ended")
  const replies: Array<Reply> = []
  for (const [index, { interruptId: requestId, payload = null, status }] of resume.entries()) {
    const request = byId.get(requestId)
    if (request === undefined) continue
    const isQuestion = request.type === "question"
    if (status === "resolved" && !isQuestion && !isDecision(payload)) {
      return invalid(`resume[${index}].payload: must have approved, which is true or false, and perhaps reason, a text`)
    }
    replies.push({ requestId, answer: status === "resolved" ? payload : isQuestion ? null : denied })
  }
  const target = { turnId }
  return replies.length === 0 ? { is: "attach", target } : { is: "answer", replies, target, run: runOf(input, digest) }
}

/** What has to be done for a run. */
export const planOf = (input: RunAgentInput, known: Known): Plan => {
  const { answered, conversation, run } = known
  const news = newsOf(input, conversation)
  if ("is" in news) return news
  const { results, users } = news
  const isAnswering = (input.resume ?? []).length > 0
  if (isAnswering) {
    return users.length + results.length > 0
      ? invalid("messages: a run with resume has no new message")
      : planAnswers(input, known)
  }
  if (users.length + results.length === 0) {
    if (run === undefined) return invalid("runId: is unknown, and there is no new message and no resume")
    if (run.turnId !== null && Messages.messageOfTurn(conversation, run.turnId) !== undefined) {
      return { is: "attach", target: { turnId: run.turnId } }
    }
    // A run is recorded shortly before its message, which may fail.
    return invalid("runId: its message is missing, and was not sent")
  }
  if (users.length > 0 && results.length > 0) return invalid("messages: a user's message and a tool's result are new")
  if (users.length > 1) return conflict(`messages: ${users.length} are new, and a run has one`)
  const [user] = users
  const message =
    user === undefined ? Messages.messageOfResults(results) : { content: user.content, clientMessageId: user.id }
  const digest = digestOf(["message", "key" in message ? message.key : message.clientMessageId])
  if (run !== undefined && run.digest !== digest)
    return conflict("messages: the run was requested with another message")
  const waiting = waitingIn(conversation).find(({ seq }) => !answered.has(seq))
  if (waiting !== undefined) {
    return conflict(`resume: is missing, and the request ${JSON.stringify(waiting.requestId)} waits for an answer`)
  }
  return { is: "send", ...message, run: runOf(input, digest, user?.name) }
}
