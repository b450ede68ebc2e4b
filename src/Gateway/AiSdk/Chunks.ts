/** The chunks of a UI message stream (version 1) by which a client's part becomes ours. Pure. */
import { isDeepStrictEqual } from "node:util"
import type { Approval, DataUiPart, Metadata, ReasoningUiPart, TextUiPart, ToolUiPart, UiPart } from "./UiMessage.ts"

/** A chunk of a stream, as far as this service sends it. */
export type Chunk =
  | { readonly type: "start"; readonly messageId: string; readonly messageMetadata?: Metadata }
  | { readonly type: "text-start" | "text-end" | "reasoning-start" | "reasoning-end"; readonly id: string }
  | { readonly type: "text-delta" | "reasoning-delta"; readonly id: string; readonly delta: string }
  | (ToolName & { readonly type: "tool-input-start" })
  | { readonly type: "tool-input-delta"; readonly toolCallId: string; readonly inputTextDelta: string }
  | (ToolName & { readonly type: "tool-input-available"; readonly input: unknown })
  | {
      readonly type: "tool-approval-request"
      readonly toolCallId: string
      readonly approvalId: string
      readonly approvalDescriptor?: unknown
      readonly reason?: string
    }
  | {
      readonly type: "tool-approval-response"
      readonly approvalId: string
      readonly approved: boolean
      readonly reason?: string
    }
  | { readonly type: "tool-output-available"; readonly toolCallId: string; readonly output: unknown }
  | { readonly type: "tool-output-error"; readonly toolCallId: string; readonly errorText: string }
  | { readonly type: "tool-output-denied"; readonly toolCallId: string }
  | {
      readonly type: `data-${string}`
      readonly id: string
      readonly data: unknown
      /** The client does not keep it. */
      readonly transient?: true
    }
  | { readonly type: "reset-step" }
  | { readonly type: "message-metadata"; readonly messageMetadata: Partial<Metadata> }
  | { readonly type: "finish"; readonly finishReason: "stop" | "tool-calls" }
  | { readonly type: "abort"; readonly reason?: string }
  | { readonly type: "error"; readonly errorText: string }

type ToolName = {
  readonly toolCallId: string
  readonly toolName: string
  readonly dynamic: true
  readonly providerExecuted: true
}

type Chunks = ReadonlyArray<Chunk>

/** How a part of the client becomes ours. */
export interface Change {
  /** Unique among the parts of the message. */
  readonly key: string
  /** The part as the client has it; absent if it has none. */
  readonly before: UiPart | undefined
  readonly after: UiPart
  /** What was added to a text, if that is known. */
  readonly added?: string | undefined
  /** Whether the client knows the texts in progress, which it does not after the stream that began them. */
  readonly isOpen: boolean
}

/** What was added to a text; undefined if it does not begin with the earlier one. */
const addedTo = (before: string, after: string, added: string | undefined): string | undefined => {
  if (added !== undefined && before.length + added.length === after.length) return added
  return after.startsWith(before) ? after.slice(before.length) : undefined
}

const textChunks = (
  { added, before, isOpen, key: id }: Change,
  after: TextUiPart | ReasoningUiPart
): Chunks | undefined => {
  const { type } = after
  if (before === undefined) {
    const begun: ReadonlyArray<Chunk> = [
      { type: `${type}-start`, id },
      ...(after.text === "" ? [] : [{ type: `${type}-delta`, id, delta: after.text } as const])
    ]
    return after.state === "done" ? [...begun, { type: `${type}-end`, id }] : begun
  }
  if (before.type !== type) return undefined
  const { state, text } = before
  const delta = addedTo(text, after.text, added)
  if (delta === "" && state === after.state) return []
  if (delta === undefined || !isOpen || state !== "streaming") return undefined
  return [
    ...(delta === "" ? [] : [{ type: `${type}-delta`, id, delta } as const]),
    ...(after.state === "done" ? [{ type: `${type}-end`, id } as const] : [])
  ]
}

const ranks = {
  "input-streaming": 0,
  "input-available": 1,
  "approval-requested": 2,
  "approval-responded": 3,
  "output-available": 4,
  "output-error": 4,
  "output-denied": 4
} as const

const nameOf = ({ toolCallId, toolName }: ToolUiPart): ToolName => ({
  toolCallId,
  toolName,
  dynamic: true,
  providerExecuted: true
})

/** The arguments: more of their text, or the whole value. */
const inputChunks = (
  before: ToolUiPart | undefined,
  after: ToolUiPart,
  added: string | undefined
): Chunks | undefined => {
  const { input, rawInput = "", toolCallId } = after
  if (after.state !== "input-streaming") {
    if (before === undefined || before.state === "input-streaming") {
      return [{ type: "tool-input-available", ...nameOf(after), input }] as const
    }
    return before.toolName === after.toolName && isDeepStrictEqual(before.input, input) ? [] : undefined
  }
  if (before !== undefined && before.toolName !== after.toolName) return undefined
  const inputTextDelta = addedTo(before?.rawInput ?? "", rawInput, added)
  if (inputTextDelta === undefined) return undefined
  return [
    ...(before === undefined ? [{ type: "tool-input-start", ...nameOf(after) } as const] : []),
    ...(inputTextDelta === "" ? [] : [{ type: "tool-input-delta", toolCallId, inputTextDelta } as const])
  ]
}

const isSameRequest = (a: Approval, b: Approval): boolean =>
  a.id === b.id && a.requestReason === b.requestReason && isDeepStrictEqual(a.descriptor, b.descriptor)

const approvalChunks = (
  toolCallId: string,
  before: Approval | undefined,
  after: Approval | undefined
): Chunks | undefined => {
  if (after === undefined) return before === undefined ? [] : undefined
  const { approved, descriptor, id: approvalId, reason, requestReason } = after
  if (before !== undefined && !isSameRequest(before, after)) return undefined
  if (before?.approved !== undefined) return before.approved === approved && before.reason === reason ? [] : undefined
  const request: Chunk = {
    type: "tool-approval-request",
    toolCallId,
    approvalId,
    ...(descriptor !== undefined && { approvalDescriptor: descriptor }),
    ...(requestReason !== undefined && { reason: requestReason })
  }
  const requested = before === undefined ? [request] : []
  if (approved === undefined) return requested
  return [
    ...requested,
    { type: "tool-approval-response", approvalId, approved, ...(reason !== undefined && { reason }) }
  ]
}

const outcomeChunks = (before: ToolUiPart | undefined, after: ToolUiPart): Chunks => {
  const { errorText = "", output, state, toolCallId } = after
  const isSame =
    before?.state === state && before.errorText === after.errorText && isDeepStrictEqual(before.output, output)
  if (isSame) return []
  switch (state) {
    case "output-available":
      return [{ type: "tool-output-available", toolCallId, output }]
    case "output-error":
      return [{ type: "tool-output-error", toolCallId, errorText }]
    case "output-denied":
      return [{ type: "tool-output-denied", toolCallId }]
    default:
      return []
  }
}

const toolChunks = ({ added, before, isOpen }: Change, after: ToolUiPart): Chunks | undefined => {
  if (before !== undefined) {
    if (before.type !== "dynamic-tool" || !("toolCallId" in before)) return undefined
    if (before.toolCallId !== after.toolCallId || !(ranks[before.state] <= ranks[after.state])) return undefined
  }
  const input = inputChunks(before, after, added)
  const approval = approvalChunks(after.toolCallId, before?.approval, after.approval)
  // After the last stream the client has only the text of the arguments, which continues.
  if (input === undefined || approval === undefined || (!isOpen && before?.state === "input-streaming"))
    return undefined
  return [...input, ...approval, ...outcomeChunks(before, after)]
}

const isData = (part: UiPart): part is DataUiPart => part.type.startsWith("data-")

/** The chunks by which a part of the client becomes ours; undefined if none do, and the message has to be sent again. */
export const chunksOf = (change: Change): Chunks | undefined => {
  const { after, before } = change
  if (after.type === "text" || after.type === "reasoning") return textChunks(change, after as TextUiPart)
  if (after.type === "dynamic-tool") return toolChunks(change, after as ToolUiPart)
  const { data, id, type } = after as DataUiPart
  if (before !== undefined) {
    if (before.type !== type || !isData(before) || before.id !== id) return undefined
    if (isDeepStrictEqual(before.data, data)) return []
  }
  return [{ type, id, data }]
}
