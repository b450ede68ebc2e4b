/** The beginnings and ends of runs. Pure. A run is a turn, or the part of it between two answers of a person. */

import * as Messages from "../../AgUi/Messages.ts"
import {
  type AgUiEvent,
  type ClientMessage,
  given,
  type Interrupt,
  protocolVersion,
  type TokenUsage
} from "../../AgUi/Protocol.ts"
import type { Conversation, Part, RequestPart, ToolPart, Usage } from "../../Client/Conversation/Conversation.ts"
import { callOf, waitingIn } from "../Streams/Inquiries.ts"
import { isUnsent, messageOfTurn } from "../Streams/Plan.ts"
import { Translation } from "./Translation.ts"

/** The names that the client gave to a thread and a run. */
export interface Run {
  readonly threadId: string
  readonly runId: string
}

/**
 * What a client that joins a run gets first, and the translation of what follows. `client` are the messages that the client
 * has, and `hasState` whether it has the state of the agent.
 */
export const join = (
  { runId, threadId }: Run,
  conversation: Conversation,
  client: ReadonlyArray<ClientMessage>,
  hasState = false
): { readonly events: ReadonlyArray<AgUiEvent>; readonly translation: Translation } => {
  const names = new Messages.Names(conversation.epoch)
  const messages = Messages.fitting(Messages.messagesOf(conversation, names))
  const translation = new Translation(conversation, names, hasState)
  return {
    events: [
      { type: "RUN_STARTED", threadId, runId, protocolVersion },
      ...Messages.snapshots(client, messages),
      ...translation.begin()
    ],
    translation
  }
}

/** The events after which a client has the messages of a conversation in their order, whatever it has. */
export const correction = (conversation: Conversation): ReadonlyArray<AgUiEvent> =>
  Messages.snapshots([{ id: "", role: "assistant" }], Messages.fitting(Messages.messagesOf(conversation)))

const approvalSchema = {
  type: "object",
  properties: { approved: { type: "boolean" }, reason: { type: "string" } },
  required: ["approved"]
}

/** A question or a request for approval as an interrupt. */
const interruptOf = (request: RequestPart, parts: ReadonlyArray<Part>, names: Messages.Names): Interrupt => {
  const { description, details, options, requestId: id, title, type } = request
  const metadata = given({ description, details })
  const described = Object.keys(metadata).length === 0 ? {} : { metadata: { "causeway.request": metadata } }
  if (type === "question") {
    const responseSchema = options === undefined ? {} : { enum: options }
    return { id, reason: "input_required", message: title, responseSchema, ...described }
  }
  const callId = callOf(request)
  const call = parts.findLast((part): part is ToolPart => part.type === "tool" && part.callId === callId)
  const message = description === undefined ? title : `${title}: ${description}`
  const named =
    call === undefined
      ? ({ reason: "confirmation" } as const)
      : ({ reason: "tool_call", toolCallId: names.call(call) } as const)
  return { id, ...named, message, responseSchema: approvalSchema, ...described }
}

const usageOf = (usage: Usage | undefined): { readonly usage?: ReadonlyArray<TokenUsage> } => {
  if (usage === undefined) return {}
  const { cacheReadTokens, cacheWriteTokens, inputTokens, model, outputTokens, totalTokens } = usage
  const tokens: TokenUsage = given({
    ...{ model, inputTokens, outputTokens, totalTokens },
    cachedInputTokens: cacheReadTokens,
    cacheWriteInputTokens: cacheWriteTokens
  } as TokenUsage)
  return { usage: [tokens] }
}

/**
 * The last event of a run of a turn, if it has ended: because the turn has ended, or because a person is asked. `answered`
 * are the requests that were answered although their resolution has not arrived, by `seq`.
 */
export const endOf = (
  run: Run,
  conversation: Conversation,
  names: Messages.Names,
  turnId: string,
  answered: ReadonlySet<number> = new Set()
): AgUiEvent | undefined => {
  const message = messageOfTurn(conversation, turnId)
  if (message === undefined) return undefined
  const { error, parts, reason, status } = message
  const finished = { type: "RUN_FINISHED", threadId: run.threadId, runId: run.runId } as const
  const usage = usageOf(message.usage)
  switch (status) {
    case "completed": {
      const pending = parts.flatMap(part =>
        part.type === "tool" && Messages.resultOf(part) === undefined ? [names.call(part)] : []
      )
      const outcome = { type: "success" as const, ...(pending.length === 0 ? {} : { pendingToolCallIds: pending }) }
      return { ...finished, outcome, ...usage }
    }
    case "interrupted":
      return { ...finished, outcome: { type: "cancelled" }, ...usage }
    case "failed":
      return {
        type: "RUN_ERROR",
        message: error?.message ?? reason ?? "The turn failed",
        code: error?.code ?? "turn_failed",
        ...usage,
        metadata: { "causeway.retryable": isUnsent(message) }
      }
    default: {
      const waiting = waitingIn(conversation, turnId).filter(({ seq }) => !answered.has(seq))
      if (waiting.length === 0) return undefined
      const interrupts = waiting.map(request => interruptOf(request, parts, names))
      return { ...finished, outcome: { type: "interrupt", interrupts }, ...usage }
    }
  }
}
