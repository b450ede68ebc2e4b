/** Which client events each type of platform event becomes. */
import { Option } from "effect"
import * as Events from "../Protocol/EventBodies.ts"
import { all, always, from, never, nothing, orElse, type Payload, type Rule, to } from "./Rule.ts"

const text = from("delta", "content")
const callId = from("toolCallId")
const reason = from("message")

/** The fields of an error, at the top or within `error`. */
const problem = (code: string, message: string) => ({
  code: orElse(code, "error.code"),
  message: orElse(message, "error.message", "error", "reason"),
  retryable: orElse(false, "error.retryable")
})

const figures = to(Events.UsageUpdate, {
  inputTokens: from("promptTokens"),
  outputTokens: from("completionTokens"),
  costUsd: from("cost")
})

const envelope: ReadonlySet<string> = new Set(["type", "turnId"])

/** Token counts and costs, where there are any. */
const update: Rule = (payload, situation) =>
  Option.filter(figures(payload, situation), ({ events }) =>
    events.some(event => Object.keys(event).some(name => !envelope.has(name)))
  )

const measured = to(Events.UsageContext, {
  used: from("contextUsed", "context.used"),
  limit: from("contextLimit", "context.limit"),
  // Computed again, so that it agrees with `used` and `limit`.
  percent: orElse(0)
})

const percentOf = (used: number, limit: number): number => Math.round((used / limit) * 10_000) / 100

const context: Rule = (payload, situation) =>
  Option.map(measured(payload, situation), ({ events, isWhole }) => ({
    events: events.map(event =>
      event.type === "usage_context" ? { ...event, percent: percentOf(event.used, event.limit) } : event
    ),
    isWhole
  }))

const contextNames = ["used", "limit", "contextUsed", "contextLimit", "context"]

/** Whether the payload is about the context window at all. */
const saysContext = (payload: Payload): boolean =>
  contextNames.some(name => Object.hasOwn(payload, name) && payload[name] !== null)

/** Usage, how full the context window is, or both. */
const usage: Rule = (payload, situation) => {
  const spent = update(payload, situation)
  const full = context(payload, situation)
  if (Option.isNone(full)) {
    return Option.map(spent, ({ events, isWhole }) => ({ events, isWhole: isWhole && !saysContext(payload) }))
  }
  if (Option.isNone(spent)) return full
  return Option.some({
    events: [...spent.value.events, ...full.value.events],
    isWhole: spent.value.isWhole && full.value.isWhole
  })
}

const rules = {
  "instance.starting": to(Events.SessionState, { state: always("activating"), reason }),
  "instance.ready": to(Events.SessionState, { state: always("active"), reason }),
  "instance.stopping": to(Events.SessionState, { state: always("deactivating"), reason }),
  "instance.stopped": to(Events.SessionState, { state: always("inactive"), reason }),
  "instance.failed": all(
    to(Events.SessionState, { state: always("error"), reason: from("message", "error.message", "error") }),
    to(Events.ErrorEvent, problem("instance_failed", "The agent instance failed"))
  ),
  heartbeat: nothing,
  log: nothing,

  // The author and the content of a message are known to the gateway only.
  "turn.started": to(Events.TurnStarted, { content: never, sub: never, clientMessageId: never }),
  "turn.completed": to(Events.TurnCompleted),
  "turn.failed": to(Events.TurnErrored, problem("turn_failed", "The turn failed")),
  "turn.cancelled": to(Events.TurnInterrupted, { reason }),

  "message.start": to(Events.TextStart),
  "message.delta": to(Events.TextDelta, { text }),
  "message.complete": to(Events.TextEnd, { text: from("content") }),
  "thinking.start": to(Events.ThinkingStart),
  "thinking.delta": to(Events.ThinkingDelta, { text }),
  "thinking.complete": to(Events.ThinkingEnd, { text: from("content") }),

  "tool.call.start": to(Events.ToolCallStart, { callId }),
  "tool.call.delta": to(Events.ToolCallDelta, { callId, text }),
  "tool.call": to(Events.ToolCall, { callId, args: from("input", "arguments") }),
  "tool.progress": to(Events.ToolProgress, { callId }),
  "tool.result": to(Events.ToolResult, { callId, result: from("output", "content") }),
  "tool.error": to(Events.ToolError, {
    callId,
    code: from("error.code"),
    message: orElse("The tool failed", "error.message", "error")
  }),

  "question.asked": to(Events.QuestionRequested),
  "question.answered": to(Events.QuestionResolved),
  "approval.requested": to(Events.ApprovalRequested, { details: from("input") }),
  "approval.resolved": to(Events.ApprovalResolved),

  "terminal.opened": to(Events.TerminalOpened),
  "terminal.output": to(Events.TerminalOutput, { text: from("data", "output", "delta", "content") }),
  "terminal.exited": to(Events.TerminalExited),

  "file.created": to(Events.FileChanged, { change: always("created") }),
  "file.modified": to(Events.FileChanged, { change: always("modified") }),
  "file.deleted": to(Events.FileChanged, { change: always("deleted") }),
  "file.renamed": to(Events.FileChanged, { change: always("renamed"), path: from("to"), previousPath: from("from") }),

  "plan.updated": to(Events.PlanUpdated, { plan: from("steps") }),
  "step.started": to(Events.StepStarted),
  "step.completed": to(Events.StepCompleted),
  "subagent.started": to(Events.SubagentStarted),
  "subagent.completed": to(Events.SubagentCompleted),
  "artifact.created": to(Events.ArtifactCreated),
  "checkpoint.created": to(Events.CheckpointCreated),
  "state.snapshot": to(Events.StateSnapshot, { state: from("snapshot") }),
  "state.delta": to(Events.StateDelta, { patch: from("delta") }),

  usage,
  rate_limited: to(Events.RateLimited),
  error: to(Events.ErrorEvent, problem("agent_error", "The agent met an error"))
} satisfies Record<string, Rule>

/** By platform type. A map, since a type may be called `constructor`. */
export const table: ReadonlyMap<string, Rule> = new Map(Object.entries(rules))
