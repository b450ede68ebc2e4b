/** The messages of AG-UI that a conversation has, and what they have in common with those of a client. Pure. */
import { hash } from "node:crypto"
import { Option, Schema } from "effect"
import { isObject } from "../base/Json/Parsing.ts"
import {
  type Conversation,
  ownKey,
  type Part,
  type ToolPart,
  type UserMessage
} from "../Client/Conversation/Conversation.ts"
import type { AgUiEvent, ClientMessage, Message, Metadata } from "./Protocol.ts"

/** The type of an activity message that has a plan. */
export const planActivity = "causeway.plan"
const authoritativeActivityTypes = [planActivity]

/** The start of an epoch, with which ids begin. */
export const startOf = (epoch: string): string => epoch.slice(0, 8)

/** The start of the epoch of an id of the form that {@link Names} gives; none for other ids. */
export const epochOf = (id: string): string | undefined => /^([0-9a-f]{8})-[1-9]\d*(?:-result)?$/.exec(id)?.[1]

/**
 * The ids of messages and calls. An id of a message is made of the epoch and of the number of an event, because agents may
 * use an id again. A call keeps the id that its agent gave it, unless an earlier call has the same one.
 */
export class Names {
  private readonly used = new Set<string>()
  private readonly calls = new WeakMap<ToolPart, string>()

  constructor(private readonly epoch: string) {}

  message({ seq }: { readonly seq: number }): string {
    return `${startOf(this.epoch)}-${seq}`
  }

  user(message: Pick<UserMessage, "clientMessageId" | "seq">): string {
    const { clientMessageId } = message
    const isFree = clientMessageId !== undefined && epochOf(clientMessageId) !== startOf(this.epoch)
    return isFree ? clientMessageId : this.message(message)
  }

  call(part: ToolPart): string {
    const known = this.calls.get(part)
    if (known !== undefined) return known
    const { callId } = part
    const name = this.used.has(callId) ? `${callId}-${this.message(part)}` : callId
    this.used.add(name)
    this.calls.set(part, name)
    return name
  }

  result(part: ToolPart): string {
    return `${this.message(part)}-result`
  }
}

const textOf = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value ?? null))

/** The arguments of a call as JSON text, as far as they are known. */
export const argumentsOf = (part: ToolPart): string =>
  "args" in part ? JSON.stringify(part.args) : (part.argsText ?? "")

/** The result of a call, if it has one. A failure is named in `metadata`. */
export const resultOf = (part: ToolPart): { readonly content: string; readonly metadata?: Metadata } | undefined => {
  if (part.error !== undefined) return { content: part.error.message, metadata: { "causeway.error": part.error } }
  return "result" in part ? { content: textOf(part.result) } : undefined
}

const messagesOfTool = (part: ToolPart, names: Names): ReadonlyArray<Message> => {
  const toolCallId = names.call(part)
  const call = { name: part.name, arguments: argumentsOf(part) }
  const result = resultOf(part)
  return [
    {
      id: names.message(part),
      role: "assistant",
      toolCalls: [{ id: toolCallId, type: "function", function: call }]
    },
    ...(result === undefined ? [] : [{ id: names.result(part), role: "tool" as const, toolCallId, ...result }])
  ]
}

const messagesOfPart = (part: Part, names: Names): ReadonlyArray<Message> => {
  switch (part.type) {
    case "text":
      return [{ id: names.message(part), role: "assistant", content: part.text }]
    case "reasoning":
      return [{ id: names.message(part), role: "reasoning", content: part.text }]
    case "tool":
      return messagesOfTool(part, names)
    case "plan":
      return [
        { id: names.message(part), role: "activity", activityType: planActivity, content: { plan: part.plan ?? null } }
      ]
    default:
      return []
  }
}

/** Whether a part is a message of AG-UI. */
export const isMessage = ({ type }: Part): boolean =>
  type === "text" || type === "reasoning" || type === "tool" || type === "plan"

/** The messages of users. One that was sent again, because it had not reached the agent, counts once. */
const usersOf = ({ messages }: Conversation): ReadonlySet<object> => {
  const users = messages.filter((message): message is UserMessage => message.role === "user")
  // The last one of each key.
  const byKey = new Map(users.map(message => [message.clientMessageId ?? message, message]))
  return new Set(byKey.values())
}

/** A result of a tool that a client has run, or its error. */
const ClientResult = Schema.Struct({
  id: Schema.String,
  toolCallId: Schema.String,
  content: Schema.String,
  error: Schema.optionalWith(Schema.String, { exact: true })
})
export type ClientResult = typeof ClientResult.Type

const ResultsText = Schema.parseJson(Schema.Array(ClientResult))
const decodeResults = Schema.decodeUnknownOption(ResultsText)
const resultsPrefix = ownKey("results ")

/** Results of a client's tools as a message to the agent. Its key marks it as such. */
export const messageOfResults = (
  results: ReadonlyArray<ClientResult>
): { readonly content: string; readonly key: string } => ({
  content: Schema.encodeSync(ResultsText)(results),
  key: resultsPrefix + hash("sha256", JSON.stringify(results.map(({ id }) => id)), "base64url")
})

/** The results of a client's tools that a message has; none if it is a text. */
export const resultsIn = ({
  clientMessageId,
  text
}: Pick<UserMessage, "clientMessageId" | "text">): ReadonlyArray<ClientResult> | undefined =>
  clientMessageId?.startsWith(resultsPrefix) === true ? Option.getOrUndefined(decodeResults(text)) : undefined

const messagesOfUser = (message: UserMessage, names: Names): ReadonlyArray<Message> =>
  resultsIn(message)?.map(result => ({ ...result, role: "tool" })) ?? [
    { id: names.user(message), role: "user", content: message.text }
  ]

/** Moves the results of a client's tools to their calls, where clients have them. */
const atCalls = (messages: Array<Message>, results: ReadonlySet<Message>): Array<Message> => {
  const others = messages.filter(message => !results.has(message))
  for (const result of results) {
    const { toolCallId } = result as ClientResult
    const call = others.findIndex(
      message => message.role === "assistant" && message.toolCalls?.some(({ id }) => id === toolCallId) === true
    )
    let at = call < 0 ? others.length : call + 1
    while (at < others.length && others[at]!.role === "tool") at++
    others.splice(at, 0, result)
  }
  return others
}

/** All messages of a conversation. A message in progress has its text so far. */
export const messagesOf = (conversation: Conversation, names = new Names(conversation.epoch)): Array<Message> => {
  const results = new Set<Message>()
  const users = usersOf(conversation)
  const messages = conversation.messages.flatMap((message): ReadonlyArray<Message> => {
    if (message.role === "agent") return message.parts.flatMap(part => messagesOfPart(part, names))
    if (!users.has(message)) return []
    const made = messagesOfUser(message, names)
    for (const one of made) if (one.role === "tool") results.add(one)
    return made
  })
  return results.size === 0 ? messages : atCalls(messages, results)
}

export const isTextPart = (part: unknown): part is { readonly type: "text"; readonly text: string } =>
  isObject(part) && part.type === "text" && typeof part.text === "string"

/** The text of a message of a client. Undefined if it has other parts. */
export const contentOf = ({ content }: Pick<ClientMessage, "content">): string | undefined => {
  if (content === undefined) return ""
  if (typeof content === "string") return content
  return Array.isArray(content) && content.every(isTextPart) ? content.map(({ text }) => text).join("") : undefined
}

const normalized = (json: string): string => {
  try {
    return JSON.stringify(JSON.parse(json))
  } catch {
    return json
  }
}

/** Whether two JSON texts have the same value, with the members of objects in the same order. */
export const isSameJson = (a: string, b: string): boolean => a === b || normalized(a) === normalized(b)

const isSame = (client: ClientMessage, message: Message): boolean => {
  if (client.id !== message.id || client.role !== message.role || message.role === "activity") return false
  if (contentOf(client) !== (message.content ?? "")) return false
  if (message.role === "tool") return client.toolCallId === message.toolCallId
  if (message.role !== "assistant") return true
  const calls = message.toolCalls ?? []
  const theirs = client.toolCalls ?? []
  return (
    calls.length === theirs.length &&
    calls.every(({ function: call, id }, index) => {
      const { id: theirId, function: theirCall } = theirs[index]!
      return id === theirId && call.name === theirCall.name && isSameJson(theirCall.arguments, call.arguments)
    })
  )
}

/** Characters of a snapshot as JSON: the official client takes 10 Mi in an event. */
const longestSnapshot = 9 * 1024 * 1024

/** The newest messages, as many as fit into a snapshot. */
export const fitting = (messages: ReadonlyArray<Message>): ReadonlyArray<Message> => {
  let room = longestSnapshot
  const last = messages.findLastIndex(message => {
    room -= JSON.stringify(message).length + 1
    return room < 0
  })
  if (last < 0) return messages
  const kept = messages.slice(last + 1)
  const first = kept.findIndex(({ role }) => role !== "tool")
  return kept.slice(first < 0 ? kept.length : first)
}

/**
 * The events after which a client has the messages of a conversation. `client` are those that it has; clients send no
 * activities.
 *
 * A snapshot replaces messages in place and adds what is missing, in the order that the client has. Where this is another
 * order, an empty snapshot comes first. A client keeps its thoughts with a snapshot that has none: then the first message
 * stands for all of them.
 */
export const snapshots = (
  client: ReadonlyArray<ClientMessage>,
  messages: ReadonlyArray<Message>
): ReadonlyArray<AgUiEvent> => {
  const theirs = client.filter(({ role }) => role !== "activity" && role !== "system" && role !== "developer")
  const ours = messages.filter(({ role }) => role !== "activity")
  if (
    ours.length === messages.length &&
    ours.length === theirs.length &&
    ours.every((message, at) => isSame(theirs[at]!, message))
  ) {
    return []
  }
  const snapshot = (messages: ReadonlyArray<Message>): AgUiEvent => {
    return { type: "MESSAGES_SNAPSHOT", messages, metadata: { "@ag-ui/client": { authoritativeActivityTypes } } }
  }
  const isPrefix =
    ours.length === messages.length && theirs.every(({ id, role }, at) => id === ours[at]?.id && role === ours[at].role)
  if (isPrefix) return [snapshot(messages)]
  const [first] = messages
  const hasThoughts = [...theirs, ...messages].some(({ role }) => role === "reasoning")
  const placeholders =
    first !== undefined && hasThoughts ? [{ id: first.id, role: "reasoning", content: "" } as const] : []
  return [snapshot(placeholders), snapshot(messages)]
}
