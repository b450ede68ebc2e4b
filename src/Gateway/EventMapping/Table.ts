/** Which client events each type of platform event becomes. */
import * as Conversation from "../Protocol/Events/Conversation.ts"
import * as Lifecycle from "../Protocol/Events/Lifecycle.ts"
import * as Work from "../Protocol/Events/Work.ts"
import { all, always, from, never, nothing, orElse, type Rule, to } from "./Rule.ts"
import { usage } from "./Usage.ts"

const text = from("delta", "content")
const callId = from("toolCallId")
const reason = from("message")

/** What went wrong: said plainly, or within an `error`. */
const problem = (code: string, message: string) => ({
  code: orElse(code, "error.code"),
  message: orElse(message, "error.message", "error", "reason"),
  retryable: orElse(false, "error.retryable")
})

const rules = {
  "instance.starting": to(Lifecycle.SessionState, { state: always("activating"), reason }),
  "instance.ready": to(Lifecycle.SessionState, { state: always("active"), reason }),
  "instance.stopping": to(Lifecycle.SessionState, { state: always("deactivating"), reason }),
  "instance.stopped": to(Lifecycle.SessionState, { state: always("inactive"), reason }),
  "instance.failed": all(
    to(Lifecycle.SessionState, { state: always("error"), reason: from("message", "error.message", "error") }),
    to(Lifecycle.ErrorEvent, problem("instance_failed", "The agent instance failed"))
  ),
  heartbeat: nothing,
  log: nothing,

  // What somebody wrote, and who, is known to the gateway alone.
  "turn.started": to(Lifecycle.TurnStarted, { content: never, sub: never, clientMessageId: never }),
  "turn.completed": to(Lifecycle.TurnCompleted),
  "turn.failed": to(Lifecycle.TurnErrored, problem("turn_failed", "The turn failed")),
  "turn.cancelled": to(Lifecycle.TurnInterrupted, { reason }),

  "message.start": to(Conversation.TextStart),
  "message.delta": to(Conversation.TextDelta, { text }),
  "message.complete": to(Conversation.TextEnd, { text: from("content") }),
  "thinking.start": to(Conversation.ThinkingStart),
  "thinking.delta": to(Conversation.ThinkingDelta, { text }),
  "thinking.complete": to(Conversation.ThinkingEnd, { text: from("content") }),

  "tool.call.start": to(Conversation.ToolCallStart, { callId }),
  "tool.call.delta": to(Conversation.ToolCallDelta, { callId, text }),
  "tool.call": to(Conversation.ToolCall, { callId, args: from("input", "arguments") }),
  "tool.progress": to(Conversation.ToolProgress, { callId }),
  "tool.result": to(Conversation.ToolResult, { callId, result: from("output", "content") }),
  "tool.error": to(Conversation.ToolError, {
    callId,
    code: from("error.code"),
    message: orElse("The tool failed", "error.message", "error")
  }),

  "question.asked": to(Conversation.QuestionRequested),
  "question.answered": to(Conversation.QuestionResolved),
  "approval.requested": to(Conversation.ApprovalRequested, { details: from("input") }),
  "approval.resolved": to(Conversation.ApprovalResolved),

  "terminal.opened": to(Work.TerminalOpened),
  "terminal.output": to(Work.TerminalOutput, { text: from("data", "output", "delta", "content") }),
  "terminal.exited": to(Work.TerminalExited),

  "file.created": to(Work.FileChanged, { change: always("created") }),
  "file.modified": to(Work.FileChanged, { change: always("modified") }),
  "file.deleted": to(Work.FileChanged, { change: always("deleted") }),
  "file.renamed": to(Work.FileChanged, { change: always("renamed"), path: from("to"), previousPath: from("from") }),

  "plan.updated": to(Work.PlanUpdated, { plan: from("steps") }),
  "step.started": to(Work.StepStarted),
  "step.completed": to(Work.StepCompleted),
  "subagent.started": to(Work.SubagentStarted),
  "subagent.completed": to(Work.SubagentCompleted),
  "artifact.created": to(Work.ArtifactCreated),
  "checkpoint.created": to(Work.CheckpointCreated),
  "state.snapshot": to(Work.StateSnapshot, { state: from("snapshot") }),
  "state.delta": to(Work.StateDelta, { patch: from("delta") }),

  usage,
  rate_limited: to(Lifecycle.RateLimited),
  error: to(Lifecycle.ErrorEvent, problem("agent_error", "The agent met an error"))
} satisfies Record<string, Rule>

/** The rule for each platform type that is known. A map, since a type may be called `constructor`. */
export const table: ReadonlyMap<string, Rule> = new Map(Object.entries(rules))
