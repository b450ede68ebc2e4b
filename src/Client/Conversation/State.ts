/** The state of a fold: a conversation, and what the fold looks up in it. */

import type { SessionEvent } from "../SessionModel.ts"
import type { AgentMessage, Conversation, Message, Part, RequestPart } from "./Conversation.ts"

/** The limits of a conversation, in characters. The end of a long text is kept, and the newest parts of a long one. */
export interface Limits {
  /** Of all texts and values. */
  readonly all: number
  /** Of a message, a thought or the arguments of a call. */
  readonly text: number
  /** Of a terminal's output. */
  readonly output: number
}

export const limits: Limits = { all: 8 * 1024 * 1024, text: 1024 * 1024, output: 200_000 }

/** The members of an object that are not undefined. */
export const given = <A extends object>(members: { [Name in keyof A]: A[Name] | undefined }): A => {
  for (const name in members) if (members[name] === undefined) delete members[name]
  return members as A
}

/** A part that later events may complete, with its message. */
interface OpenPart {
  readonly message: AgentMessage
  readonly part: Part
}

/** The key of an open part: its type and its id, which no other open part has. */
const keyOf = (part: Part): string | undefined => {
  switch (part.type) {
    case "text":
    case "reasoning":
      return part.inProgress && `${part.type} ${part.id}`
    case "tool":
      return part.inProgress && `tool ${part.callId}`
    case "terminal":
      return part.inProgress && `terminal ${part.terminalId}`
    case "step":
      return part.inProgress && `step ${part.stepId}`
    case "subagent":
      return part.inProgress && `subagent ${part.subagentId}`
    case "question":
    case "approval":
      return part.status === "pending" ? `request ${part.requestId}` : undefined
    default:
      return undefined
  }
}

/** A fold in progress: the conversation so far, which it changes in place, and what it looks up in it. */
export interface Fold {
  readonly conversation: Conversation
  /** By key. */
  readonly open: Map<string, OpenPart>
  /** By turn id. */
  readonly turns: Map<string, AgentMessage>
  readonly limits: Limits
  /** The size of each part, and of all with the texts of users. */
  readonly sizes: Map<Part, number>
  size: number
  /** The part that the last event has started or changed. */
  touched: Part | undefined
}

const jsonSize = (...values: ReadonlyArray<unknown>): number =>
  values.reduce<number>((sum, value) => sum + (value === undefined ? 0 : JSON.stringify(value).length), 0)

/** The characters of a part that may be many, and a constant for the others. */
const sizeOf = (part: Part): number => {
  const others = 100
  switch (part.type) {
    case "text":
    case "reasoning":
      return others + part.text.length
    case "terminal":
      return others + part.output.length
    case "tool":
      return others + (part.argsText?.length ?? 0) + jsonSize(part.args, part.result, part.error)
    case "question":
    case "approval":
      return others + jsonSize(part.title, part.description, part.options, part.details, part.answer, part.reason)
    case "plan":
      return others + jsonSize(part.plan)
    case "subagent":
      return others + jsonSize(part.task, part.result)
    default:
      return others + jsonSize(part)
  }
}

/** The conversation of a history of which the events up to `trimmedSeq` are not kept. */
export const empty = (epoch: string, trimmedSeq = 0): Conversation => ({
  epoch,
  seq: trimmedSeq,
  trimmedSeq,
  turns: [],
  waiting: [],
  messages: []
})

/** Continues a conversation, which may have been stored as JSON. */
export const resume = (conversation: Conversation, most: Limits = limits): Fold => {
  const maps = { open: new Map(), turns: new Map(), sizes: new Map() }
  const fold: Fold = { conversation, ...maps, limits: most, size: 0, touched: undefined }
  for (const message of conversation.messages) {
    if (message.role === "user") {
      fold.size += message.text.length
      continue
    }
    if (message.turnId !== undefined) fold.turns.set(message.turnId, message)
    for (const part of message.parts) {
      measure(fold, part)
      const key = keyOf(part)
      if (key !== undefined) fold.open.set(key, { message, part })
    }
  }
  return fold
}

/** Adds the size of a part that is new or has changed. */
export const measure = (fold: Fold, part: Part): void => {
  const size = sizeOf(part)
  fold.size += size - (fold.sizes.get(part) ?? 0)
  fold.sizes.set(part, size)
}

/**
 * The agent's message that an event belongs to: that of its turn, or else of the newest turn in progress, or else the
 * last message.
 */
export const messageOf = (fold: Fold, event: SessionEvent): AgentMessage => {
  const { messages, trimmedSeq, turns } = fold.conversation
  const { seq, timestamp } = event
  const turnId = ("turnId" in event ? event.turnId : undefined) ?? turns.at(-1)
  const last = messages.at(-1)
  const known = turnId === undefined ? (last?.role === "agent" ? last : undefined) : fold.turns.get(turnId)
  if (known !== undefined) {
    known.lastSeq = seq
    return known
  }
  const message = given<AgentMessage>({ role: "agent", seq, timestamp, lastSeq: seq, turnId, parts: [] })
  messages.push(message)
  if (turnId === undefined) return message
  fold.turns.set(turnId, message)
  // Its start may be among the events that are no longer kept.
  if (trimmedSeq > 0 && messages.length === 1) start(fold, message, turnId)
  return message
}

export const start = ({ conversation }: Fold, message: AgentMessage, turnId: string): void => {
  if (message.status === "running") return
  message.status = "running"
  conversation.turns.push(turnId)
}

/** Where a part began. */
export const at = ({ seq, timestamp }: SessionEvent) => ({ seq, timestamp })

/** Adds a part to the message of an event. It completes an open part with the same key. */
export const begin = <New extends Part>(
  fold: Fold,
  event: SessionEvent,
  members: { [Name in keyof New]: New[Name] | undefined }
): New => {
  const message = messageOf(fold, event)
  const part = given<New>(members)
  message.parts.push(part)
  fold.touched = part
  const key = keyOf(part)
  if (key === undefined) return part
  const before = fold.open.get(key)
  if (before !== undefined) end(fold, before.part)
  fold.open.set(key, { message, part })
  return part
}

export const find = <Found extends Part>(fold: Fold, { seq }: SessionEvent, key: string): Found | undefined => {
  const place = fold.open.get(key)
  if (place === undefined) return undefined
  place.message.lastSeq = seq
  fold.touched = place.part
  return place.part as Found
}

export const end = (fold: Fold, part: Part, status: RequestPart["status"] = "expired"): void => {
  const { conversation, open } = fold
  const key = keyOf(part)
  if (key === undefined) return
  open.delete(key)
  if (part.type === "question" || part.type === "approval") {
    part.status = status
    conversation.waiting = conversation.waiting.filter(requestId => requestId !== part.requestId)
  } else if ("inProgress" in part) {
    delete part.inProgress
    // It is smaller now, as a fold that resumes here finds it.
    measure(fold, part)
  }
}

const removePart = (fold: Fold, part: Part): void => {
  end(fold, part)
  fold.size -= fold.sizes.get(part) ?? 0
  fold.sizes.delete(part)
}

/** Forgets a message that the conversation has no longer. */
const removeMessage = (fold: Fold, message: Message): void => {
  if (message.role === "user") {
    fold.size -= message.text.length
    return
  }
  if (message.turnId !== undefined) fold.turns.delete(message.turnId)
  for (const part of message.parts) removePart(fold, part)
}

/** Removes the oldest messages, and the oldest parts of the turns in progress, until the conversation has room. */
export const shorten = (fold: Fold): void => {
  const { conversation } = fold
  const most = fold.limits.all * 0.9
  const last = conversation.messages.at(-1)
  let omitted = 0
  conversation.messages = conversation.messages.filter(message => {
    if (fold.size <= most) return true
    if (message.role === "user" || (message.status !== "running" && message !== last)) {
      omitted = Math.max(omitted, message.seq)
      removeMessage(fold, message)
      return false
    }
    while (fold.size > most && message.parts.length > 1) {
      const part = message.parts.shift()!
      omitted = Math.max(omitted, part.seq)
      removePart(fold, part)
    }
    return true
  })
  conversation.trimmedSeq = Math.max(conversation.trimmedSeq, omitted)
}

/** Removes the messages of which no event is kept, except those of turns in progress. */
export const trim = (fold: Fold, trimmedSeq: number): void => {
  const { conversation } = fold
  if (trimmedSeq <= conversation.trimmedSeq) return
  conversation.trimmedSeq = trimmedSeq
  conversation.seq = Math.max(conversation.seq, trimmedSeq)
  conversation.messages = conversation.messages.filter(message => {
    const isKept =
      message.role === "user" ? message.seq > trimmedSeq : message.lastSeq > trimmedSeq || message.status === "running"
    if (!isKept) removeMessage(fold, message)
    return isKept
  })
}
