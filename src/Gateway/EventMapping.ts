/**
 * Platform events as client events. The mapping is pure and total.
 */
import { Option, Schema } from "effect"
import type { PlatformEvent } from "../Upstream/PlatformEvent.ts"
import {
  all,
  always,
  from,
  joined,
  never,
  nothing,
  orElse,
  type Payload,
  type Rule,
  type Situation,
  to
} from "./EventMapping/Rule.ts"
import type { EventBody, EventBodyOf } from "./Protocol/Event.ts"
import { Identifier } from "./Protocol/Fields.ts"

export type { Situation } from "./EventMapping/Rule.ts"

const text = from("delta", "content")
const callId = from("toolCallId")
const reason = from("message")

/** The fields of an error, at the top level or in `error`. */
const problem = (code: string, message: string) => ({
  code: orElse(code, "error.code"),
  message: orElse(message, "error.message", "error", "reason"),
  retryable: orElse(false, "error.retryable")
})

const tokenUsage = to("usage_update", {
  inputTokens: from("promptTokens"),
  outputTokens: from("completionTokens"),
  costUsd: from("cost")
})

const envelope: ReadonlySet<string> = new Set(["type", "turnId"])

/** Token counts and costs, if there are any. */
const tokenUsageIfAny: Rule = (payload, situation) =>
  Option.filter(tokenUsage(payload, situation), ({ events }) =>
    events.some(event => Object.keys(event).some(name => !envelope.has(name)))
  )

const contextUsage = to("usage_context", {
  used: from("contextUsed", "context.used"),
  limit: from("contextLimit", "context.limit"),
  // Replaced by the percentage of `used` and `limit`.
  percent: orElse(0)
})

const percentOf = (used: number, limit: number): number => Math.round((used / limit) * 10_000) / 100

const contextUsageWithPercent: Rule = (payload, situation) =>
  Option.map(contextUsage(payload, situation), ({ events, isWhole }) => ({
    events: events.map(event =>
      event.type === "usage_context" ? { ...event, percent: percentOf(event.used, event.limit) } : event
    ),
    isWhole
  }))

const contextNames = ["used", "limit", "contextUsed", "contextLimit", "context"]

/** Whether the payload is about the context window at all. */
const mentionsContext = (payload: Payload): boolean =>
  contextNames.some(name => Object.hasOwn(payload, name) && payload[name] !== null)

/** Usage, how full the context window is, or both. */
const usage: Rule = (payload, situation) => {
  const spent = tokenUsageIfAny(payload, situation)
  const full = contextUsageWithPercent(payload, situation)
  if (Option.isNone(full)) {
    return Option.map(spent, ({ events, isWhole }) => ({ events, isWhole: isWhole && !mentionsContext(payload) }))
  }
  return Option.isNone(spent) ? full : Option.some(joined([spent.value, full.value]))
}

const rules = {
  "instance.starting": to("session_state", { state: always("activating"), reason }),
  "instance.ready": to("session_state", { state: always("active"), reason }),
  "instance.stopping": to("session_state", { state: always("deactivating"), reason }),
  "instance.stopped": to("session_state", { state: always("inactive"), reason }),
  "instance.failed": all(
    to("session_state", { state: always("error"), reason: from("message", "error.message", "error") }),
    to("error", problem("instance_failed", "The agent instance failed"))
  ),
  heartbeat: nothing,
  log: nothing,

  // Only the gateway knows the author and the content of a message.
  "turn.started": to("turn_started", { content: never, sub: never, clientMessageId: never }),
  "turn.completed": to("turn_completed"),
  "turn.failed": to("turn_errored", problem("turn_failed", "The turn failed")),
  "turn.cancelled": to("turn_interrupted", { reason }),

  "message.start": to("text_start"),
  "message.delta": to("text_delta", { text }),
  "message.complete": to("text_end", { text: from("content") }),
  "thinking.start": to("thinking_start"),
  "thinking.delta": to("thinking_delta", { text }),
  "thinking.complete": to("thinking_end", { text: from("content") }),

  "tool.call.start": to("tool_call_start", { callId }),
  "tool.call.delta": to("tool_call_delta", { callId, text }),
  "tool.call": to("tool_call", { callId, args: from("input", "arguments") }),
  "tool.progress": to("tool_progress", { callId }),
  "tool.result": to("tool_result", { callId, result: from("output", "content") }),
  "tool.error": to("tool_error", {
    callId,
    code: from("error.code"),
    message: orElse("The tool failed", "error.message", "error")
  }),

  "question.asked": to("question_requested"),
  "question.answered": to("question_resolved"),
  "approval.requested": to("approval_requested", { details: from("input") }),
  "approval.resolved": to("approval_resolved"),

  "terminal.opened": to("terminal_opened"),
  "terminal.output": to("terminal_output", { text: from("data", "output", "delta", "content") }),
  "terminal.exited": to("terminal_exited"),

  "file.created": to("file_changed", { change: always("created") }),
  "file.modified": to("file_changed", { change: always("modified") }),
  "file.deleted": to("file_changed", { change: always("deleted") }),
  "file.renamed": to("file_changed", { change: always("renamed"), path: from("to"), previousPath: from("from") }),

  "plan.updated": to("plan_updated", { plan: from("steps") }),
  "step.started": to("step_started"),
  "step.completed": to("step_completed"),
  "subagent.started": to("subagent_started"),
  "subagent.completed": to("subagent_completed"),
  "artifact.created": to("artifact_created"),
  "checkpoint.created": to("checkpoint_created"),
  "state.snapshot": to("state_snapshot", { state: from("snapshot") }),
  "state.delta": to("state_delta", { patch: from("delta") }),

  usage,
  rate_limited: to("rate_limited"),
  error: to("error", problem("agent_error", "The agent reported an error"))
} satisfies Record<string, Rule>

/** By platform type. A map, because a type may be called `constructor`. */
const table: ReadonlyMap<string, Rule> = new Map(Object.entries(rules))

/** The client events of a platform event. */
export interface Mapped {
  /** In order, without envelopes. */
  readonly events: ReadonlyArray<EventBody>
  /** The type, if the event is dropped although its type should reach clients. */
  readonly dropped?: string
  /** The type, if it is known and a field of the payload is invalid. */
  readonly malformed?: string
}

/** The platform types that have a rule. */
export const platformTypes: ReadonlyArray<string> = [...table.keys()]

/** Maximum characters of a delta; longer ones are split. Other events are bounded by the size of a platform frame. */
export const longestDelta = 65_536

const isIdentifier = Schema.is(Identifier)

/** Splits a text into pieces, none of which ends within a surrogate pair. */
const pieces = (text: string): ReadonlyArray<string> => {
  const all: Array<string> = []
  for (let at = 0; at < text.length; ) {
    const end = at + longestDelta
    const last = text.charCodeAt(end - 1)
    const isSplit = end < text.length && last >= 0xd800 && last <= 0xdbff
    const next = isSplit ? end - 1 : end
    all.push(text.slice(at, next))
    at = next
  }
  return all
}

/** Splits an event whose text is too long for one event. */
export const cut = (event: EventBody): ReadonlyArray<EventBody> => {
  switch (event.type) {
    case "text_delta":
    case "thinking_delta":
    case "tool_call_delta":
    case "terminal_output":
      return event.text.length <= longestDelta ? [event] : pieces(event.text).map(text => ({ ...event, text }))
    default:
      return [event]
  }
}

const textNames = ["content", "text", "delta"]

/** The text of an event of unknown type. */
const textOf = (payload: Payload): string | undefined =>
  textNames
    .map(name => (Object.hasOwn(payload, name) ? payload[name] : undefined))
    .find((value): value is string => typeof value === "string" && value !== "")

const unknown = (type: string, payload: Payload, { turnId }: Situation): Mapped => {
  const text = textOf(payload)
  if (text === undefined) return { events: [], dropped: type }
  const named = Object.hasOwn(payload, "turnId") ? payload.turnId : turnId
  const delta: EventBodyOf<"text_delta"> = {
    type: "text_delta",
    ...(isIdentifier(named) ? { turnId: named } : {}),
    text
  }
  return { events: cut(delta) }
}

/**
 * Maps a platform event.
 *
 * A known type whose payload lacks a required field is treated as an unknown type: its text becomes a `text_delta`, and
 * without text it is dropped. An invalid optional field is left out. Both are reported as malformed.
 */
export const map = ({ type, payload }: Pick<PlatformEvent, "type" | "payload">, situation: Situation = {}): Mapped => {
  const rule = table.get(type)
  if (rule === undefined) return unknown(type, payload, situation)
  const outcome = rule(payload, situation)
  if (Option.isNone(outcome)) return { ...unknown(type, payload, situation), malformed: type }
  const { isWhole } = outcome.value
  const events = outcome.value.events.flatMap(cut)
  return isWhole ? { events } : { events, malformed: type }
}
