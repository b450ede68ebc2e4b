/** Platform events, and what they are mapped to. */
import * as EventMapping from "../../../src/Gateway/EventMapping.ts"
import * as PlatformEvent from "../../../src/Upstream/PlatformEvent.ts"

/** Fields of an event. */
export type Payload = Readonly<Record<string, unknown>>

/** Maps an event as it comes over the wire. */
export const map = (type: string, payload: Payload = {}, situation?: EventMapping.Situation): EventMapping.Mapped => {
  const frame = JSON.stringify({ id: "e1", timestamp: 1, ...payload, type })
  const read = PlatformEvent.fromFrame(frame)
  if (read._tag === "Left") throw new Error(String(read.left))
  return EventMapping.map(read.right, situation)
}

export const t = { turnId: "t1" }
export const m = { ...t, messageId: "m1" }
export const h = { ...t, thinkingId: "h1" }
export const x = { ...t, terminalId: "x1" }
export const platformCall = { ...t, toolCallId: "c1" }
export const call = { ...t, callId: "c1" }
const request = { ...t, requestId: "r1" }
const file = { iteration: 2, size: 10, hash: "abc" }
export const failure = { code: "broken", message: "It broke", retryable: true }

/** Each type of platform event: its payload, and the client events. */
export const cases: ReadonlyArray<readonly [string, Payload, ReadonlyArray<Payload>]> = [
  ["instance.starting", { instanceId: "i1" }, [{ type: "session_state", state: "activating" }]],
  ["instance.ready", { instanceId: "i1" }, [{ type: "session_state", state: "active" }]],
  ["instance.stopping", { reason: "asked" }, [{ type: "session_state", state: "deactivating", reason: "asked" }]],
  ["instance.stopped", { message: "bye" }, [{ type: "session_state", state: "inactive", reason: "bye" }]],
  [
    "instance.failed",
    failure,
    [
      { type: "session_state", state: "error", reason: "It broke" },
      { type: "error", ...failure }
    ]
  ],
  ["heartbeat", {}, []],
  ["log", { level: "info", message: "hello", content: "hello" }, []],
  ["turn.started", t, [{ type: "turn_started", ...t }]],
  ["turn.completed", t, [{ type: "turn_completed", ...t }]],
  ["turn.failed", { ...t, ...failure }, [{ type: "turn_errored", ...t, ...failure }]],
  ["turn.cancelled", { ...t, reason: "asked" }, [{ type: "turn_interrupted", ...t, reason: "asked" }]],
  ["message.start", { ...m, role: "assistant" }, [{ type: "text_start", ...m, role: "assistant" }]],
  ["message.delta", { ...m, delta: "hel" }, [{ type: "text_delta", ...m, text: "hel" }]],
  ["message.complete", { ...m, content: "hello" }, [{ type: "text_end", ...m, text: "hello" }]],
  ["thinking.start", h, [{ type: "thinking_start", ...h }]],
  ["thinking.delta", { ...h, delta: "hm" }, [{ type: "thinking_delta", ...h, text: "hm" }]],
  ["thinking.complete", { ...h, content: "hm." }, [{ type: "thinking_end", ...h, text: "hm." }]],
  ["tool.call.start", { ...platformCall, name: "grep" }, [{ type: "tool_call_start", ...call, name: "grep" }]],
  ["tool.call.delta", { ...platformCall, delta: '{"a"' }, [{ type: "tool_call_delta", ...call, text: '{"a"' }]],
  [
    "tool.call",
    { ...platformCall, name: "grep", input: { a: 1 } },
    [{ type: "tool_call", ...call, name: "grep", args: { a: 1 } }]
  ],
  [
    "tool.progress",
    { ...platformCall, message: "half", progress: 0.5 },
    [{ type: "tool_progress", ...call, message: "half", progress: 0.5 }]
  ],
  ["tool.result", { ...platformCall, output: [1] }, [{ type: "tool_result", ...call, result: [1] }]],
  ["tool.error", { ...platformCall, message: "no" }, [{ type: "tool_error", ...call, message: "no" }]],
  [
    "question.asked",
    { ...request, question: "Which?", options: ["a", "b"] },
    [{ type: "question_requested", ...request, question: "Which?", options: ["a", "b"] }]
  ],
  ["question.answered", { ...request, answer: "a" }, [{ type: "question_resolved", ...request, answer: "a" }]],
  [
    "approval.requested",
    { ...request, action: "run", description: "rm", input: { c: 1 } },
    [{ type: "approval_requested", ...request, action: "run", description: "rm", details: { c: 1 } }]
  ],
  ["approval.resolved", { ...request, approved: false }, [{ type: "approval_resolved", ...request, approved: false }]],
  [
    "terminal.opened",
    { ...x, command: "ls", cwd: "/w" },
    [{ type: "terminal_opened", ...x, command: "ls", cwd: "/w" }]
  ],
  [
    "terminal.output",
    { ...x, stream: "stderr", data: "oh\n" },
    [{ type: "terminal_output", ...x, stream: "stderr", text: "oh\n" }]
  ],
  ["terminal.exited", { ...x, exitCode: -1 }, [{ type: "terminal_exited", ...x, exitCode: -1 }]],
  ["file.created", { path: "a", ...file }, [{ type: "file_changed", change: "created", path: "a", ...file }]],
  ["file.modified", { path: "a", ...file }, [{ type: "file_changed", change: "modified", path: "a", ...file }]],
  ["file.deleted", { path: "a" }, [{ type: "file_changed", change: "deleted", path: "a" }]],
  [
    "file.renamed",
    { from: "a", path: "b", ...file },
    [{ type: "file_changed", change: "renamed", path: "b", previousPath: "a", ...file }]
  ],
  ["plan.updated", { ...t, plan: [{ id: 1 }] }, [{ type: "plan_updated", ...t, plan: [{ id: 1 }] }]],
  ["step.started", { ...t, stepId: "s", title: "S" }, [{ type: "step_started", ...t, stepId: "s", title: "S" }]],
  [
    "step.completed",
    { ...t, stepId: "s", status: "done" },
    [{ type: "step_completed", ...t, stepId: "s", status: "done" }]
  ],
  [
    "subagent.started",
    { ...t, subagentId: "g", agentType: "reader" },
    [{ type: "subagent_started", ...t, subagentId: "g", agentType: "reader" }]
  ],
  [
    "subagent.completed",
    { ...t, subagentId: "g", result: null },
    [{ type: "subagent_completed", ...t, subagentId: "g", result: null }]
  ],
  [
    "artifact.created",
    { ...t, artifactId: "f", name: "r.md", mimeType: "text/markdown", uri: "w:r.md" },
    [{ type: "artifact_created", ...t, artifactId: "f", name: "r.md", mimeType: "text/markdown", uri: "w:r.md" }]
  ],
  [
    "checkpoint.created",
    { ...t, checkpointId: "k", label: "L" },
    [{ type: "checkpoint_created", ...t, checkpointId: "k", label: "L" }]
  ],
  ["state.snapshot", { ...t, state: { n: 1 } }, [{ type: "state_snapshot", ...t, state: { n: 1 } }]],
  ["state.delta", { ...t, patch: [{ op: "remove" }] }, [{ type: "state_delta", ...t, patch: [{ op: "remove" }] }]],
  [
    "usage",
    { ...t, inputTokens: 100, outputTokens: 20, used: 120, limit: 90_000 },
    [
      { type: "usage_update", ...t, inputTokens: 100, outputTokens: 20 },
      { type: "usage_context", ...t, used: 120, limit: 90_000, percent: 0.13 }
    ]
  ],
  ["rate_limited", { ...t, retryAfterMs: 1000 }, [{ type: "rate_limited", ...t, retryAfterMs: 1000 }]],
  ["error", { ...t, ...failure }, [{ type: "error", ...t, ...failure }]]
]

/** For each type with required fields, a payload that lacks them. */
export const malformed: ReadonlyArray<readonly [string, Payload]> = [
  ["turn.started", {}],
  ["turn.completed", { turnId: 7 }],
  ["turn.failed", { ...failure, turnId: null }],
  ["turn.cancelled", { turnId: "" }],
  ["message.start", { messageId: 7 }],
  ["message.delta", { messageId: 7, delta: ["hel"] }],
  ["message.complete", { messageId: "x".repeat(513) }],
  ["thinking.start", { thinkingId: {} }],
  ["thinking.delta", t],
  ["thinking.complete", t],
  ["tool.call.start", platformCall],
  ["tool.call.delta", t],
  ["tool.call", { ...platformCall, name: 5 }],
  ["tool.progress", { progress: 1 }],
  ["tool.result", { output: 1 }],
  ["tool.error", { message: "no" }],
  ["question.asked", request],
  ["question.answered", { answer: "a" }],
  ["approval.requested", request],
  ["approval.resolved", { ...request, approved: "yes" }],
  ["terminal.opened", { command: "ls" }],
  ["terminal.output", t],
  ["terminal.exited", { exitCode: 0 }],
  ["file.created", { path: null }],
  ["file.modified", { path: "" }],
  ["file.deleted", {}],
  ["file.renamed", { from: "a" }],
  ["plan.updated", t],
  ["step.started", { title: "S" }],
  ["step.completed", { status: "done" }],
  ["subagent.started", { subagentId: 1 }],
  ["subagent.completed", {}],
  ["artifact.created", { name: "r.md" }],
  ["checkpoint.created", { label: "L" }],
  ["state.snapshot", t],
  ["state.delta", t],
  ["usage", { inputTokens: "many", used: -1, limit: 0 }]
]
