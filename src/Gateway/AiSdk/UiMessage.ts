/**
 * A conversation as messages of the AI SDK (`UIMessage` of its version 7). Pure, and without the package itself.
 *
 * The agent's message of a turn is one message, whose id is the turn's. An answered question ends it: the answer is a
 * message of the user, and what follows is another message.
 */
import { Schema } from "effect"
import {
  type AgentMessage,
  type Conversation,
  ownPrefix,
  type Part,
  type RequestPart,
  type TextPart,
  type ToolPart,
  type UserMessage
} from "../../Client/Conversation/Conversation.ts"
import { given } from "../../Client/Conversation/State.ts"
import { optional } from "../Protocol/Fields.ts"
import { callOf } from "../Streams/Inquiries.ts"
import { isUnsent } from "../Streams/Plan.ts"

/** What this service says about a message: its turn and its author, and how the turn ended. */
export interface Metadata
  extends Pick<AgentMessage, "turnId" | "error" | "reason" | "usage">,
    Pick<UserMessage, "sub"> {
  /** Epoch milliseconds. */
  readonly createdAt: number
  /** Absent while the turn runs. */
  readonly status?: Exclude<AgentMessage["status"], "running" | undefined>
}

/** An approval of a tool call. */
const Approval = Schema.Struct({
  id: Schema.String,
  descriptor: optional(Schema.Unknown),
  requestReason: optional(Schema.String),
  /** Absent while a person is asked. */
  approved: optional(Schema.Boolean),
  reason: optional(Schema.String)
}).annotations({ identifier: "Approval" })
export type Approval = typeof Approval.Type

/** A part of a message, as far as it is written or read. Those of clients may have any type, and other members. */
export const UiPart = Schema.Struct({
  /** `text`, `reasoning`, `dynamic-tool`, or `data-…`. */
  type: Schema.String,
  /** `streaming` or `done`; of a call, how far it is. */
  state: optional(Schema.String),
  /** Of a text, of a reasoning. */
  text: optional(Schema.String),
  /** Of data, of a reasoning: unique in the session. */
  id: optional(Schema.String),
  data: optional(Schema.Unknown),
  toolCallId: optional(Schema.String),
  toolName: optional(Schema.String),
  /** The agent runs all tools, so that the client runs none. */
  providerExecuted: optional(Schema.Boolean),
  /** The arguments of a call, as far as they are written, if `state` is `input-streaming`. */
  rawInput: optional(Schema.String),
  input: optional(Schema.Unknown),
  output: optional(Schema.Unknown),
  errorText: optional(Schema.String),
  approval: optional(Approval)
})
export type UiPart = typeof UiPart.Type

/** A message of the AI SDK. */
export interface UiMessage {
  readonly id: string
  readonly role: "user" | "assistant"
  readonly metadata: Metadata
  readonly parts: ReadonlyArray<UiPart>
}

/** Maximum characters of a terminal's output: the end. Each change sends all of them. */
const outputCharacters = 8192

/** What may be a name that the package refuses. */
const suspect = /__proto__|constructor/

const isPrototype = (value: unknown): boolean =>
  typeof value === "object" && value !== null && Object.hasOwn(value, "prototype")

/** A value without the members for which the package refuses the whole stream (`secureJsonParse`). */
const safe = (value: unknown): unknown => {
  const text = JSON.stringify(value)
  if (text === undefined || !suspect.test(text)) return value
  return JSON.parse(text, (name, member) =>
    name === "__proto__" || (name === "constructor" && isPrototype(member)) ? undefined : member
  )
}

/** A text of arguments as a value; the text itself if it is not JSON. */
const parsed = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

const inputOf = ({ args, argsText }: Call): unknown =>
  args !== undefined ? args : argsText === undefined ? {} : parsed(argsText)

const approvalOf = ({ approvalId, request }: Shown, descriptor: unknown): Approval | undefined => {
  if (request === undefined) return undefined
  const { approved = false, description, reason, status } = request
  const asked = { id: approvalId, descriptor: descriptor ?? undefined, requestReason: description }
  if (status === "answered") return given<Approval>({ ...asked, approved, reason })
  const expired = { approved: false, reason: "The turn ended without an answer" }
  return given<Approval>(status === "expired" ? { ...asked, ...expired } : asked)
}

/** A call of a tool, or what stands for it. */
type Call = Pick<ToolPart, "name" | "args" | "argsText" | "result" | "error">

/** A call with the request for its approval. `isEnded` is whether its turn, or the wait for the approval, has ended. */
const toolUi = (tool: Call, shown: Shown, isEnded: boolean): UiPart => {
  const { request, toolCallId } = shown
  const call = { type: "dynamic-tool", toolName: tool.name, toolCallId, providerExecuted: true } as const
  const approval = approvalOf(shown, shown.part.type === "approval" ? undefined : safe(request?.details))
  const hasOutcome = tool.error !== undefined || tool.result !== undefined
  if (!isEnded && !hasOutcome && request === undefined && tool.args === undefined) {
    return { ...call, state: "input-streaming", ...(tool.argsText && { rawInput: tool.argsText }) }
  }
  const written = { ...call, input: safe(inputOf(tool)) }
  // A denial is final, whatever the agent says of the call.
  const isFinal = request?.status === "answered" || (isEnded && !hasOutcome)
  if (approval?.approved === false && isFinal) return { ...written, state: "output-denied", approval }
  const approved = approval?.approved === true && { approval }
  if (isEnded || hasOutcome) {
    const noOutcome = hasOutcome ? undefined : "The turn ended before the tool"
    const errorText = tool.error?.message ?? noOutcome
    return errorText === undefined
      ? { ...written, state: "output-available", output: safe(tool.result), ...approved }
      : { ...written, state: "output-error", errorText, ...approved }
  }
  if (approval === undefined) return { ...written, state: "input-available" }
  return { ...written, state: approved ? "approval-responded" : "approval-requested", approval }
}

const textUi = ({ seq, text, type }: TextPart, isStreaming: boolean): UiPart => ({
  ...(type === "text" ? { type } : { type, id: String(seq) }),
  text,
  state: isStreaming ? "streaming" : "done"
})

const dataUi = (part: Exclude<Part, TextPart | ToolPart>): UiPart => {
  const { seq, timestamp, type, ...data } = part
  const shown =
    part.type === "terminal" ? { ...data, output: part.output.slice(-outputCharacters).toWellFormed() } : data
  return { type: `data-${type.replaceAll("_", "-")}`, id: String(seq), data: safe(shown) }
}

/** A part of a message that is shown, with what it is made of. */
export interface Shown {
  /** Unique in the session, and the same each time. */
  readonly key: string
  readonly part: Part
  /** Of a tool call, or of the call that stands for a request. */
  readonly toolCallId: string
  /** The request for the approval of a call, and its id. */
  request: RequestPart | undefined
  approvalId: string
  /** The progress of a call that the client has. */
  progress?: ToolPart["progress"]
}

/**
 * The parts of one message in order. They are added one by one, so that a message in progress is continued without
 * looking at all of it again.
 */
export class Parts {
  private readonly shown = new Map<Part, Shown>()
  private readonly calls = new Map<string, Shown>()
  private readonly ids = new Set<string>()

  /** What a part that was added is shown as. */
  of(part: Part): Shown | undefined {
    return this.shown.get(part)
  }

  /** Adds a part. It is shown as the part that is returned, which may be an earlier one. */
  add(part: Part): Shown {
    const shown = this.shownAs(part)
    this.shown.set(part, shown)
    return shown
  }

  private shownAs(part: Part): Shown {
    const key = String(part.seq)
    const request = part.type === "approval" ? part : undefined
    const approvalId = request === undefined ? "" : this.unique(request.requestId, key)
    const known = request && this.calls.get(callOf(request) ?? "")
    if (known !== undefined) return Object.assign(known, { request, approvalId })
    const call = part.type === "tool" ? part.callId : request && `approval-${request.requestId}`
    const toolCallId = call === undefined ? "" : this.unique(`call ${call}`, key).slice(5)
    const shown = { key, part, toolCallId, request, approvalId }
    if (part.type === "tool") this.calls.set(part.callId, shown)
    return shown
  }

  /** An id that no other part of the message has: some agents use ids again. */
  private unique(id: string, key: string): string {
    const free = this.ids.has(id) ? `${id}-${key}` : id
    this.ids.add(free)
    return free
  }
}

/** What a part of a message is shown as. */
export const uiOf = (shown: Shown, { parts, status }: AgentMessage): UiPart => {
  const { part, request } = shown
  const isEnded = (status !== undefined && status !== "running") || request?.status === "expired"
  switch (part.type) {
    case "text":
    case "reasoning":
      // A text without an id continues until another part begins.
      return textUi(
        part,
        part.inProgress === true || (part.id === undefined && part === parts.at(-1) && status === "running")
      )
    case "tool":
      return toolUi(part, shown, isEnded)
    case "approval": {
      // A call stands for a request that names none. It ends with its approval.
      const { approved, details = {}, status, title } = request ?? part
      const ended = status === "answered" && approved === true && { result: { approved } }
      return toolUi({ name: title, args: details, ...ended }, shown, isEnded)
    }
    default:
      return dataUi(part)
  }
}

/** A message of the agent, or the part of it that follows an answered question. */
export interface Segment {
  readonly id: string
  /** Epoch milliseconds. */
  readonly createdAt: number
  /** The `seq` of the question before it. */
  readonly after: number | undefined
  /** The first of the message's parts, by index, and the one after the last. */
  readonly from: number
  readonly to: number
}

/** The id of an agent's message. */
const idOf = ({ seq, turnId }: AgentMessage): string => turnId ?? `events-${seq}`

/** The messages that an agent's message is shown as. `asked` is a question that counts as answered. */
export const segmentsOf = (message: AgentMessage, asked?: number): ReadonlyArray<Segment> => {
  const { parts, timestamp } = message
  const segments: Array<Segment> = []
  let begun: Omit<Segment, "to"> = { id: idOf(message), createdAt: timestamp, after: undefined, from: 0 }
  parts.forEach((part, index) => {
    if (part.type !== "question" || (part.status !== "answered" && part.seq !== asked)) return
    segments.push({ ...begun, to: index + 1 })
    const { seq, timestamp: createdAt } = part
    begun = { id: `${idOf(message)}/${seq}`, createdAt, after: seq, from: index + 1 }
  })
  segments.push({ ...begun, to: parts.length })
  return segments
}

/** The message that follows a question, which may not be answered yet; the last one if there is no such question. */
export const segmentAfter = (message: AgentMessage, seq: number | undefined): Segment => {
  const segments = segmentsOf(message, seq)
  return segments.find(({ after }) => seq !== undefined && after === seq) ?? segments.at(-1)!
}

/** The metadata that the start of a message has. */
export const startOf = ({ turnId }: AgentMessage, { createdAt }: Pick<Segment, "createdAt">): Metadata =>
  given<Metadata>({ createdAt, turnId })

/** The metadata that the end of a turn adds. */
export const endOf = ({ error, reason, status, usage }: AgentMessage): Partial<Metadata> =>
  status === undefined || status === "running" ? {} : given<Partial<Metadata>>({ status, error, reason, usage })

/** The parts of a segment that are shown. */
export const shownIn = ({ parts }: AgentMessage, { from, to }: Pick<Segment, "from" | "to">): ReadonlyArray<Shown> => {
  const all = new Parts()
  return [...new Set(parts.slice(from, to).map(part => all.add(part)))]
}

/**
 * The id of the user's message that starts a turn, and that of the answer to a question. A key of the service is none: the
 * client sends its history again, and may send no such key.
 */
export const userIdOf = ({ clientMessageId, turnId }: UserMessage): string =>
  clientMessageId === undefined || clientMessageId.startsWith(ownPrefix) ? `${turnId}/message` : clientMessageId
export const answerIdOf = (message: AgentMessage, { seq }: RequestPart): string => `${idOf(message)}/${seq}/answer`

const agentMessages = (message: AgentMessage): ReadonlyArray<UiMessage> => {
  const segments = segmentsOf(message)
  return segments.flatMap((segment, index): ReadonlyArray<UiMessage> => {
    const isLast = index === segments.length - 1
    const metadata = { ...startOf(message, segment), ...(isLast && endOf(message)) }
    const parts = shownIn(message, segment).map(shown => uiOf(shown, message))
    // A turn that has shown nothing yet is no message.
    const shown: ReadonlyArray<UiMessage> =
      parts.length === 0 && (metadata.status ?? "completed") === "completed"
        ? []
        : [{ id: segment.id, role: "assistant", metadata, parts }]
    if (isLast) return shown
    const question = message.parts[segment.to - 1] as RequestPart
    const { answer, timestamp } = question
    return [
      ...shown,
      userMessage(answerIdOf(message, question), answerText(answer), startOf(message, { createdAt: timestamp }))
    ]
  })
}

/** The text of an answer to a question. */
export const answerText = (answer: unknown): string =>
  typeof answer === "string" ? answer : JSON.stringify(answer ?? null)

const userMessage = (id: string, text: string, metadata: Metadata): UiMessage => ({
  id,
  role: "user",
  metadata,
  parts: [{ type: "text", text, state: "done" }]
})

/** The turns whose messages were sent again, because they had not reached the agent. */
const replacedIn = ({ messages }: Conversation): ReadonlySet<string | undefined> => {
  const unsent = new Set(messages.flatMap(each => (each.role === "agent" && isUnsent(each) ? [each.turnId] : [])))
  const users = messages.filter(message => message.role === "user")
  const newest = new Map(users.map(message => [userIdOf(message), message]))
  const replaced = users.filter(each => unsent.has(each.turnId) && newest.get(userIdOf(each)) !== each)
  return new Set(replaced.map(({ turnId }) => turnId))
}

/** The messages of a conversation. */
export const messagesOf = (conversation: Conversation): ReadonlyArray<UiMessage> => {
  const replaced = replacedIn(conversation)
  return conversation.messages.flatMap(message => {
    if (message.turnId !== undefined && replaced.has(message.turnId)) return []
    if (message.role === "agent") return agentMessages(message)
    const { sub, text, timestamp: createdAt, turnId } = message
    return [userMessage(userIdOf(message), text, given<Metadata>({ createdAt, turnId, sub }))]
  })
}
