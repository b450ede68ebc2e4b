/**
 * The conversation as an agent gets it: the newest messages of the projection, within limits. Pure.
 *
 * A call of a tool is sent together with its result, or not at all.
 */
import { Names as MessageNames, messagesOf, resultsIn } from "../../AgUi/Messages.ts"
import type { Message } from "../../AgUi/Protocol.ts"
import type { AgentMessage, Conversation, Part, UserMessage } from "../../Client/Conversation/Conversation.ts"

/** How much of a conversation an agent gets. */
export interface Limits {
  /** Messages. */
  readonly messages: number
  /** Bytes of the messages as JSON. */
  readonly bytes: number
}

/** The names of the agent for its own messages where it gave any, and turns for those of users. */
class Names extends MessageNames {
  private readonly taken = new Map<string, number>()

  override message(part: { readonly seq: number; readonly id?: unknown; readonly type?: unknown }): string {
    if (part.type !== "text" || typeof part.id !== "string") return super.message(part)
    const first = this.taken.get(part.id) ?? part.seq
    this.taken.set(part.id, first)
    return first === part.seq ? part.id : super.message(part)
  }

  override user(message: Pick<UserMessage, "clientMessageId" | "seq"> & { readonly turnId?: string }): string {
    return message.turnId ?? super.user(message)
  }
}

/** The turn for which a conversation is sent. */
export interface Turn {
  readonly turnId: string
  /** Turns whose messages the agent gets later. */
  readonly later: ReadonlySet<string>
}

/** A call without a result, unless the turn continues, would be refused by many models. */
const isSent = (part: Part, isCurrent: boolean, answered: ReadonlySet<string>): boolean => {
  if (part.type === "text") return part.text !== ""
  if (part.type !== "tool") return false
  return isCurrent || "result" in part || part.error !== undefined || answered.has(part.callId)
}

/** Whether a turn has failed or was stopped before the agent has said anything, so that no answer is expected. */
const isLost = ({ parts, status }: AgentMessage): boolean =>
  (status === "failed" || status === "interrupted") && !parts.some(({ type }) => type === "text" || type === "tool")

/** The part of a conversation that concerns a turn. */
const relevant = (conversation: Conversation, { later, turnId }: Turn): Conversation => {
  const lost = conversation.messages.filter(message => message.role === "agent" && isLost(message))
  const skipped = new Set([...later, ...lost.map(message => message.turnId)])
  const kept = conversation.messages.filter(message => message.turnId === undefined || !skipped.has(message.turnId))
  const results = kept.flatMap(message => (message.role === "user" ? (resultsIn(message) ?? []) : []))
  const answered = new Set(results.map(({ toolCallId }) => toolCallId))
  const messages = kept.map(message =>
    message.role === "user"
      ? message
      : { ...message, parts: message.parts.filter(part => isSent(part, message.turnId === turnId, answered)) }
  )
  return { ...conversation, messages }
}

/** Messages that are sent together or not at all: a call and what follows of it, or one message. */
type Unit = ReadonlyArray<Message>

const unitsOf = (messages: ReadonlyArray<Message>): ReadonlyArray<Unit> => {
  const units: Array<Array<Message>> = []
  let calls = new Set<string>()
  for (const message of messages) {
    if (message.role === "tool") {
      // Without its call, which is no longer kept, a result means nothing.
      if (calls.has(message.toolCallId)) units.at(-1)!.push(message)
      continue
    }
    calls = new Set(message.role === "assistant" ? message.toolCalls?.map(({ id }) => id) : [])
    units.push([message])
  }
  return units
}

const isOfUser = ([first]: Unit): boolean => first?.role === "user"

const sizeOf = (unit: Unit): Limits => ({
  messages: unit.length,
  bytes: unit.reduce((sum, message) => sum + Buffer.byteLength(JSON.stringify(message)) + 1, 0)
})

/** Where the newest units begin that are within limits together. */
const beginning = (sizes: ReadonlyArray<Limits>, { bytes, messages }: Limits): number => {
  const room = { bytes, messages }
  const last = sizes.findLastIndex(size => {
    room.messages -= size.messages
    room.bytes -= size.bytes
    return room.bytes < 0 || room.messages < 0
  })
  return last + 1
}

/**
 * The newest units within the limits; the newest one in any case. They begin with a message of a user, since some models
 * refuse others: of a turn that is cut, its message is sent too.
 */
const newest = (units: ReadonlyArray<Unit>, limits: Limits): ReadonlyArray<Unit> => {
  const sizes = units.map(sizeOf)
  const from = Math.min(beginning(sizes, limits), units.length - 1)
  const asked = units.slice(0, from + 1).findLastIndex(isOfUser)
  if (asked < 0 || asked === from) return units.slice(Math.max(from, 0))
  const { bytes, messages } = sizes[asked]!
  const rest = beginning(sizes, { bytes: limits.bytes - bytes, messages: limits.messages - messages })
  if (rest === units.length) return units.slice(from)
  return isOfUser(units[rest]!) ? units.slice(rest) : [units[asked]!, ...units.slice(rest)]
}

/** The messages for a turn, in order. Thoughts and activities are for people. */
export const messagesFor = (conversation: Conversation, turn: Turn, limits: Limits): ReadonlyArray<Message> => {
  const messages: ReadonlyArray<Message & { readonly metadata?: unknown }> = messagesOf(
    relevant(conversation, turn),
    new Names(conversation.epoch)
  )
  // Some agents refuse messages with members that only our clients know.
  return newest(unitsOf(messages.map(({ metadata, ...message }) => message)), limits).flat()
}
