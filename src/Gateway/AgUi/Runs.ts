/**
 * A run as a stream of events: what the client lacks, then the events of the session as those of AG-UI, then how it ended.
 * A run is a turn, or the part of it between two answers of a person.
 */
import { Effect } from "effect"
import * as Messages from "../../AgUi/Messages.ts"
import {
  type AgUiEvent,
  type ClientMessage,
  encode,
  given,
  type Interrupt,
  protocolVersion,
  type TokenUsage
} from "../../AgUi/Protocol.ts"
import type { Conversation, Part, RequestPart, ToolPart, Usage } from "../../Client/Conversation/Conversation.ts"
import type { SessionEvent } from "../../Client/SessionModel.ts"
import { closeCodes } from "../Protocol/Codes.ts"
import type { Encoding, Reason } from "../Streams/EventStream.ts"
import { callOf, waitingIn } from "../Streams/Inquiries.ts"
import { isUnsent, messageOfTurn, type Target } from "../Streams/Plan.ts"
import type { Followed } from "../Streams/Turns.ts"
import type { RunAgentInput } from "./Input.ts"
import { isEmpty } from "./Plan.ts"
import { Translation } from "./Translation.ts"

/** The names that the client gave to a thread and a run. */
export type Run = Pick<RunAgentInput, "threadId" | "runId">

/**
 * What a client that joins a run gets first, and the translation of what follows. `client` are the messages that the client
 * has, and `hasState` whether it has the state of the agent.
 */
export const join = (
  { runId, threadId }: Run,
  conversation: Conversation,
  client: ReadonlyArray<ClientMessage>,
  hasState: boolean
) => {
  const names = new Messages.Names(conversation.epoch)
  const messages = Messages.fitting(Messages.messagesOf(conversation, names))
  const translation = new Translation(conversation, names, hasState)
  const started: AgUiEvent = { type: "RUN_STARTED", threadId, runId, protocolVersion }
  return { events: [started, ...Messages.snapshots(client, messages), ...translation.begin()], translation }
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
  const cached = { cachedInputTokens: cacheReadTokens, cacheWriteInputTokens: cacheWriteTokens }
  return { usage: [given<TokenUsage>({ model, inputTokens, outputTokens, totalTokens, ...cached })] }
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

/** Why a stream has ended before its run, as the code of `RUN_ERROR`. */
const endings: Readonly<Record<Reason, readonly [code: string, message: string]>> = {
  complete: ["internal", "The stream has ended"],
  deleted: ["session_deleted", "The thread was deleted"],
  lost: ["history_lost", "The history of the thread was lost"],
  unreadable: ["internal", "The events of the thread cannot be read"],
  slow: [closeCodes.slowConsumer.name, "The events were not read in time"],
  busy: [closeCodes.rateLimited.name, "Other clients need the connection or its memory"],
  draining: [closeCodes.goingAway.name, "The server is shutting down"],
  expired: [closeCodes.tokenExpired.name, "The token has expired"],
  duration: [closeCodes.goingAway.name, "The stream has ended"]
}

/** The end of a stream before the end of its run, which can be joined again unless its thread is gone. */
const ended = (reason: Reason): AgUiEvent => {
  const [code, text] = endings[reason]
  const again = reason !== "deleted"
  const message = again ? `${text}; run again with the same runId` : text
  return { type: "RUN_ERROR", code, message, metadata: { "causeway.retryable": again } }
}

const bytesOf = (events: ReadonlyArray<AgUiEvent>): Uint8Array => Buffer.from(events.map(encode).join(""))

/**
 * How a run is written, from a state of the conversation on. `answered` are the requests that were answered although their
 * resolution has not arrived, by `seq`.
 */
export const encodingOf = (
  input: RunAgentInput,
  { isJoined, target: { turnId } }: Followed<Target>,
  answered: ReadonlySet<number>,
  conversation: Conversation,
  reread: Effect.Effect<Conversation, unknown>
) => {
  // A client without a state that joins does not have that of the agent.
  const hasState = isJoined !== true || !isEmpty(input.state)
  const { events, translation } = join(input, conversation, input.messages, hasState)
  const end = (of: Conversation) => endOf(input, of, translation.names, turnId, answered)
  const over = end(conversation)
  const encoding: Encoding = {
    start: bytesOf(over === undefined ? events : [...events, ...translation.end(), over]),
    isOver: over !== undefined,
    events: frames => {
      const added = frames.flatMap(({ data }) => translation.add(JSON.parse(data.toString("utf8")) as SessionEvent))
      const last = end(translation.conversation)
      if (last === undefined) return bytesOf(added)
      const all = [...added, ...translation.end()]
      if (!translation.needsSnapshot) return Effect.succeed(bytesOf([...all, last]))
      // The client has the messages in another order, which happens when turns overlap.
      return Effect.match(reread, {
        onFailure: () => bytesOf([...all, ended("unreadable")]),
        onSuccess: read => bytesOf([...all, ...correction(read), last])
      })
    },
    end: reason => bytesOf(over === undefined ? [...translation.end(), ended(reason)] : [])
  }
  return { characters: () => translation.fold.size, encoding }
}
