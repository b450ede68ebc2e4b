/** The chunks of a UI message stream (version 1) by which a client's part becomes ours. Pure. */
import { isDeepStrictEqual } from "node:util"
import { given } from "../../Client/Conversation/State.ts"
import type { Approval, UiPart } from "./UiMessage.ts"

/** A chunk of a stream: a `UIMessageChunk` of the AI SDK. */
export interface Chunk {
  readonly type: string
  readonly [member: string]: unknown
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

const textChunks = ({ added, after, before, isOpen, key: id }: Change): Chunks | undefined => {
  const { text: all = "", type } = after
  if (before !== undefined && before.type !== type) return undefined
  const { state, text = "" } = before ?? {}
  const delta = addedTo(text, all, added)
  if (delta === "" && state === after.state) return []
  if (delta === undefined || (before !== undefined && (!isOpen || state !== "streaming"))) return undefined
  return [
    ...(before === undefined ? [{ type: `${type}-start`, id }] : []),
    ...(delta === "" ? [] : [{ type: `${type}-delta`, id, delta }]),
    ...(after.state === "done" ? [{ type: `${type}-end`, id }] : [])
  ]
}

/** The states of a call in their order. The others are final. */
const states = ["input-streaming", "input-available", "approval-requested", "approval-responded"]

const rankOf = ({ state = "" }: UiPart): number => (states.includes(state) ? states.indexOf(state) : states.length)

/** The arguments: more of their text, or the whole value. */
const inputChunks = ({ added, after, before }: Change): Chunks | undefined => {
  const { input, rawInput = "", toolCallId, toolName } = after
  const call = { toolCallId, toolName, dynamic: true, providerExecuted: true }
  if (after.state !== "input-streaming") {
    if (before === undefined || before.state === "input-streaming") {
      return [{ type: "tool-input-available", ...call, input }]
    }
    return before.toolName === toolName && isDeepStrictEqual(before.input, input) ? [] : undefined
  }
  if (before !== undefined && before.toolName !== toolName) return undefined
  const inputTextDelta = addedTo(before?.rawInput ?? "", rawInput, added)
  if (inputTextDelta === undefined) return undefined
  return [
    ...(before === undefined ? [{ type: "tool-input-start", ...call }] : []),
    ...(inputTextDelta === "" ? [] : [{ type: "tool-input-delta", toolCallId, inputTextDelta }])
  ]
}

const isSameRequest = (a: Approval, b: Approval): boolean =>
  a.id === b.id && a.requestReason === b.requestReason && isDeepStrictEqual(a.descriptor, b.descriptor)

const approvalChunks = ({ after: { approval: after, toolCallId }, before: part }: Change): Chunks | undefined => {
  const before = part?.approval
  if (after === undefined) return before === undefined ? [] : undefined
  const { approved, descriptor, id: approvalId, reason, requestReason } = after
  if (before !== undefined && !isSameRequest(before, after)) return undefined
  if (before?.approved !== undefined) return before.approved === approved && before.reason === reason ? [] : undefined
  const request = given({ toolCallId, approvalId, approvalDescriptor: descriptor, reason: requestReason })
  return [
    ...(before === undefined ? [{ type: "tool-approval-request", ...request }] : []),
    ...(approved === undefined ? [] : [{ type: "tool-approval-response", ...given({ approvalId, approved, reason }) }])
  ]
}

const outcomeChunks = ({ after, before }: Change): Chunks => {
  const { errorText, output, state = "", toolCallId } = after
  if (!state.startsWith("output-")) return []
  const isSame = before?.state === state && before.errorText === errorText && isDeepStrictEqual(before.output, output)
  return isSame ? [] : [{ type: `tool-${state}`, ...given({ toolCallId, output, errorText }) }]
}

const toolChunks = (change: Change): Chunks | undefined => {
  const { after, before, isOpen } = change
  if (before !== undefined) {
    if (before.type !== "dynamic-tool" || before.toolCallId !== after.toolCallId) return undefined
    if (rankOf(before) > rankOf(after)) return undefined
    // After the last stream the client has only the text of the arguments, which continues.
    if (!isOpen && before.state === "input-streaming") return undefined
  }
  const [input, approval] = [inputChunks(change), approvalChunks(change)]
  return input && approval && [...input, ...approval, ...outcomeChunks(change)]
}

/** The chunks by which a part of the client becomes ours; undefined if none do, and the message has to be sent again. */
export const chunksOf = (change: Change): Chunks | undefined => {
  const { after, before } = change
  const { data, id, type } = after
  if (type === "text" || type === "reasoning") return textChunks(change)
  if (type === "dynamic-tool") return toolChunks(change)
  if (before !== undefined && (before.type !== type || before.id !== id)) return undefined
  return before !== undefined && isDeepStrictEqual(before.data, data) ? [] : [{ type, id, data }]
}
