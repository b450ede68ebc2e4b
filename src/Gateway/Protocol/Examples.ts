/** One frame of each type, for generated documents and for tests. */
import type { Answer, AnswerType } from "./Answer.ts"
import type { EventBody, EventBodyOf, EventType } from "./Event.ts"
import type { Session } from "./Fields.ts"
import type { RequestFrame, RequestType } from "./Request.ts"

const id = "1"
const sessionId = "s_8f3k2m"
const turnId = "t_1"
const epoch = "e_5d0c"
const timestamp = 1_767_225_600_000

/** The id of the trace in all examples. */
export const traceId = "4bf92f3577b34da6a3ce929d0e0e4736"

/** The envelope of all examples. */
export const envelope = { sessionId, seq: 7, timestamp, traceId }

const session: Session = {
  id: sessionId,
  tenant: "acme",
  agentType: "coder",
  title: "Fix the build",
  state: "active",
  instanceId: "i_42",
  createdAt: timestamp,
  updatedAt: timestamp,
  epoch,
  headSeq: 6
}

/** One request of each type, as it travels. */
export const requests: { readonly [Type in RequestType]: Extract<RequestFrame, { readonly type: Type }> } = {
  create_session: {
    type: "create_session",
    id,
    agentType: "coder",
    title: "Fix the build",
    deployment: { region: "eu" },
    environment: { LANG: "C.UTF-8" },
    secrets: { GIT_TOKEN: "a secret" }
  },
  list_sessions: { type: "list_sessions", id, limit: 50 },
  get_session: { type: "get_session", id, sessionId },
  start_session: {
    type: "start_session",
    id,
    sessionId,
    secrets: { GIT_TOKEN: "a secret" },
    environment: { LANG: "C.UTF-8" },
    deployment: { region: "eu" }
  },
  stop_session: { type: "stop_session", id, sessionId },
  delete_session: { type: "delete_session", id, sessionId },
  subscribe: { type: "subscribe", id, sessionId, afterSeq: 6, epoch },
  unsubscribe: { type: "unsubscribe", id, sessionId },
  send_message: { type: "send_message", id, sessionId, content: "Why does the build fail?", clientMessageId: "m-17" },
  interrupt_turn: { type: "interrupt_turn", id, sessionId, turnId },
  answer: { type: "answer", id, sessionId, requestId: "q_1", answer: "tea", clientMessageId: "m-18" },
  list_files: { type: "list_files", id, sessionId, path: "src", depth: 2 },
  read_file: { type: "read_file", id, sessionId, path: "README.md" },
  file_history: { type: "file_history", id, sessionId, path: "README.md" },
  file_at_iteration: { type: "file_at_iteration", id, sessionId, path: "README.md", iteration: 3 },
  ping: { type: "ping", id }
}

const file = { iteration: 3, size: 6, hash: "sha256:5891b5b5" }

/** One answer of each type. */
export const answers: { readonly [Type in AnswerType]: Extract<Answer, { readonly type: Type }> } = {
  session_created: {
    type: "session_created",
    id,
    session: { ...session, state: "inactive", instanceId: null, headSeq: 0 }
  },
  session_list: { type: "session_list", id, sessions: [session], cursor: "c184ZjNrMm0" },
  session: { type: "session", id, session },
  session_deleted: { type: "session_deleted", id, sessionId },
  subscribed: { type: "subscribed", id, session, epoch, headSeq: 6, recovered: true },
  conversation: {
    type: "conversation",
    sessionId,
    epoch,
    seq: 6,
    index: 0,
    last: false,
    text: '{"epoch":"e_5d0c","seq":6,'
  },
  subscription_ended: { type: "subscription_ended", id, sessionId },
  unsubscribed: { type: "unsubscribed", id, sessionId },
  accepted: { type: "accepted", id, turnId },
  file_list: { type: "file_list", id, entries: [{ path: "README.md", type: "file", timestamp, ...file }] },
  file_content: { type: "file_content", id, path: "README.md", content: "hello\n", encoding: "utf-8", ...file },
  file_history_list: { type: "file_history_list", id, path: "README.md", iterations: [{ timestamp, ...file }] },
  pong: { type: "pong", id, timestamp },
  error: {
    type: "error",
    id,
    error: {
      code: "bad_request",
      message: "Invalid request: content: must not be empty",
      retryable: false,
      traceId
    }
  }
}

const call = { turnId, callId: "c_1" }
const terminal = { turnId, terminalId: "x_1" }
const problem = { code: "out_of_memory", message: "The instance ran out of memory", retryable: true }

/** The body of one event of each type. */
export const bodies: { readonly [Type in EventType]: EventBodyOf<Type> } = {
  session_state: { type: "session_state", state: "reconnecting", reason: "The connection was lost" },
  turn_started: {
    type: "turn_started",
    turnId,
    content: "Why does the build fail?",
    sub: "alice",
    clientMessageId: "m-17"
  },
  turn_completed: { type: "turn_completed", turnId },
  turn_errored: { type: "turn_errored", turnId, ...problem },
  turn_interrupted: { type: "turn_interrupted", turnId, reason: "asked for" },
  text_start: { type: "text_start", turnId, messageId: "m_1", role: "assistant" },
  text_delta: { type: "text_delta", turnId, messageId: "m_1", text: "It misses " },
  text_end: { type: "text_end", turnId, messageId: "m_1", text: "It misses a file." },
  thinking_start: { type: "thinking_start", turnId, thinkingId: "h_1" },
  thinking_delta: { type: "thinking_delta", turnId, thinkingId: "h_1", text: "First the log" },
  thinking_end: { type: "thinking_end", turnId, thinkingId: "h_1", text: "First the log." },
  tool_call_start: { type: "tool_call_start", ...call, name: "search" },
  tool_call_delta: { type: "tool_call_delta", ...call, text: '{"query":' },
  tool_call: { type: "tool_call", ...call, name: "search", args: { query: "tea" } },
  tool_progress: { type: "tool_progress", ...call, message: "half-way", progress: 0.5 },
  tool_result: { type: "tool_result", ...call, result: ["green", "black"] },
  tool_error: { type: "tool_error", ...call, code: "no_index", message: "There is no index" },
  question_requested: {
    type: "question_requested",
    turnId,
    requestId: "q_1",
    question: "Tea or coffee?",
    options: ["tea", "coffee"]
  },
  question_resolved: { type: "question_resolved", turnId, requestId: "q_1", answer: "tea" },
  approval_requested: {
    type: "approval_requested",
    turnId,
    requestId: "a_1",
    action: "run_command",
    description: "Remove the build directory",
    details: { command: "rm -r build" }
  },
  approval_resolved: { type: "approval_resolved", turnId, requestId: "a_1", approved: false, reason: "too risky" },
  terminal_opened: { type: "terminal_opened", ...terminal, command: "make", cwd: "/workspace" },
  terminal_output: { type: "terminal_output", ...terminal, stream: "stderr", text: "No rule to make target\n" },
  terminal_exited: { type: "terminal_exited", ...terminal, exitCode: 2 },
  file_changed: { type: "file_changed", turnId, change: "renamed", path: "a.md", previousPath: "b.md", ...file },
  plan_updated: { type: "plan_updated", turnId, plan: [{ id: "p_1", title: "Read the log", status: "pending" }] },
  step_started: { type: "step_started", turnId, stepId: "p_1", title: "Read the log" },
  step_completed: { type: "step_completed", turnId, stepId: "p_1", title: "Read the log", status: "done" },
  subagent_started: { type: "subagent_started", turnId, subagentId: "g_1", agentType: "reader", task: "Read the log" },
  subagent_completed: { type: "subagent_completed", turnId, subagentId: "g_1", agentType: "reader", result: "done" },
  artifact_created: {
    type: "artifact_created",
    turnId,
    artifactId: "f_1",
    name: "report.md",
    mimeType: "text/markdown",
    uri: "workspace:report.md"
  },
  checkpoint_created: { type: "checkpoint_created", turnId, checkpointId: "k_1", label: "before the fix" },
  state_snapshot: { type: "state_snapshot", turnId, state: { cups: 1 } },
  state_delta: { type: "state_delta", turnId, patch: [{ op: "replace", path: "/cups", value: 2 }] },
  usage_update: { type: "usage_update", turnId, inputTokens: 1200, outputTokens: 300 },
  usage_context: { type: "usage_context", turnId, used: 1500, limit: 200_000, percent: 0.75 },
  rate_limited: { type: "rate_limited", turnId, message: "The model asks for patience", retryAfterMs: 1000 },
  error: { type: "error", turnId, ...problem }
}

/** The same as a list. */
export const allBodies: ReadonlyArray<EventBody> = Object.values(bodies)
