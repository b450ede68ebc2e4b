/**
 * The fold from the events of a session to its conversation. It is pure: folding the first events and then the rest
 * equals folding all of them.
 */

import type { EventBody, SessionEvent } from "../SessionModel.ts"
import type {
  AgentMessage,
  ArtifactPart,
  CheckpointPart,
  Conversation,
  Failure,
  FilePart,
  NoticePart,
  PlanPart,
  Progress,
  RequestPart,
  StepPart,
  SubagentPart,
  TerminalPart,
  TextPart,
  ToolPart,
  Usage,
  UserMessage
} from "./Conversation.ts"
import { at, begin, end, type Fold, find, given, measure, messageOf, shorten, start } from "./State.ts"

export { empty, type Fold, type Limits, limits, resume, trim } from "./State.ts"

type TurnEnd = "completed" | "failed" | "interrupted"

const endTurn = (fold: Fold, event: SessionEvent & { readonly turnId: string }, status: TurnEnd): AgentMessage => {
  const { conversation } = fold
  const message = messageOf(fold, event)
  conversation.turns = conversation.turns.filter(turnId => turnId !== event.turnId)
  message.status = status
  for (const part of message.parts) end(fold, part)
  return message
}

/** The end of a text. It is cut only when it is 1.5 times too long, because each cut copies it. */
const tail = (text: string, max: number): string => (text.length > max * 1.5 ? text.slice(-max) : text)

type TextEvent = SessionEvent & { readonly text?: string }

/** The open text with an id. A text without an id continues until another part begins. */
const textOf = (fold: Fold, event: TextEvent, type: TextPart["type"], id: string | undefined): TextPart => {
  if (id !== undefined) {
    const found = find<TextPart>(fold, event, `${type} ${id}`)
    return found ?? begin<TextPart>(fold, event, { type, ...at(event), id, text: "", inProgress: true })
  }
  const last = messageOf(fold, event).parts.at(-1)
  if (last?.type === type && last.id === undefined) {
    fold.touched = last
    return last
  }
  return begin<TextPart>(fold, event, { type, ...at(event), text: "" })
}

const append = ({ limits }: Fold, part: TextPart, text: string): void => {
  part.text = tail(part.text + text, limits.text)
}

const endText = (fold: Fold, event: TextEvent, type: TextPart["type"], id: string): void => {
  const part = textOf(fold, event, type, id)
  // Deltas may be missing: some agents send none, and the first ones may be no longer kept.
  if (event.text !== undefined && event.text.length > part.text.length) part.text = tail(event.text, fold.limits.text)
  end(fold, part)
}

const toolOf = (fold: Fold, event: SessionEvent & { readonly callId: string }): ToolPart => {
  const { callId } = event
  const found = find<ToolPart>(fold, event, `tool ${callId}`)
  return found ?? begin<ToolPart>(fold, event, { type: "tool", ...at(event), callId, name: "", inProgress: true })
}

const request = (fold: Fold, event: SessionEvent, members: Omit<RequestPart, "seq" | "timestamp" | "status">): void => {
  begin<RequestPart>(fold, event, { ...members, ...at(event), status: "pending" })
  fold.conversation.waiting.push(members.requestId)
}

const answer = (
  fold: Fold,
  event: SessionEvent & { readonly requestId: string },
  members: Pick<RequestPart, "answer" | "approved" | "reason">
): void => {
  const part = find<RequestPart>(fold, event, `request ${event.requestId}`)
  if (part === undefined) return
  Object.assign(part, members)
  end(fold, part, "answered")
}

const terminalOf = (fold: Fold, event: SessionEvent & { readonly terminalId: string }): TerminalPart => {
  const { terminalId } = event
  const found = find<TerminalPart>(fold, event, `terminal ${terminalId}`)
  return (
    found ??
    begin<TerminalPart>(fold, event, { type: "terminal", ...at(event), terminalId, output: "", inProgress: true })
  )
}

const sum = (a: number | undefined, b: number | undefined): number | undefined =>
  a === undefined ? b : b === undefined ? a : a + b

/** The sum of two usages. */
const added = (a: Usage, b: Usage): Usage =>
  given<Usage>({
    inputTokens: sum(a.inputTokens, b.inputTokens),
    outputTokens: sum(a.outputTokens, b.outputTokens),
    totalTokens: sum(a.totalTokens, b.totalTokens),
    cacheReadTokens: sum(a.cacheReadTokens, b.cacheReadTokens),
    cacheWriteTokens: sum(a.cacheWriteTokens, b.cacheWriteTokens),
    costUsd: sum(a.costUsd, b.costUsd),
    model: b.model ?? a.model
  })

export const usageOf = ({ messages }: Conversation): Usage =>
  messages.reduce<Usage>(
    (usage, message) => (message.role === "agent" && message.usage ? added(usage, message.usage) : usage),
    {}
  )

/** The request with an id, if it waits for a person. */
export const pending = (fold: Fold, requestId: string): RequestPart | undefined =>
  fold.open.get(`request ${requestId}`)?.part as RequestPart | undefined

const effects: {
  readonly [Type in EventBody["type"]]: (
    fold: Fold,
    event: SessionEvent & Extract<EventBody, { readonly type: Type }>
  ) => void
} = {
  session_state: (fold, event) => {
    if (event.state !== "error") return
    begin<NoticePart>(fold, event, { type: "session_failed", ...at(event), message: event.reason })
  },
  turn_started: (fold, event) => {
    const { clientMessageId, content, seq, sub, timestamp, turnId } = event
    if (content !== undefined) {
      const message = { role: "user", seq, timestamp, turnId, text: content, sub, clientMessageId } as const
      fold.conversation.messages.push(given<UserMessage>(message))
      fold.size += content.length
    }
    start(fold, messageOf(fold, event), turnId)
  },
  turn_completed: (fold, event) => {
    endTurn(fold, event, "completed")
  },
  turn_errored: (fold, event) => {
    const { code, message, retryable } = event
    endTurn(fold, event, "failed").error = { code, message, retryable }
  },
  turn_interrupted: (fold, event) => {
    const message = endTurn(fold, event, "interrupted")
    if (event.reason !== undefined) message.reason = event.reason
  },
  text_start: (fold, event) => {
    textOf(fold, event, "text", event.messageId)
  },
  text_delta: (fold, event) => append(fold, textOf(fold, event, "text", event.messageId), event.text),
  text_end: (fold, event) => endText(fold, event, "text", event.messageId),
  thinking_start: (fold, event) => {
    textOf(fold, event, "reasoning", event.thinkingId)
  },
  thinking_delta: (fold, event) => append(fold, textOf(fold, event, "reasoning", event.thinkingId), event.text),
  thinking_end: (fold, event) => endText(fold, event, "reasoning", event.thinkingId),
  tool_call_start: (fold, event) => {
    toolOf(fold, event).name = event.name
  },
  tool_call_delta: (fold, event) => {
    const tool = toolOf(fold, event)
    if (!("args" in tool)) tool.argsText = tail((tool.argsText ?? "") + event.text, fold.limits.text)
  },
  tool_call: (fold, event) => {
    const tool = toolOf(fold, event)
    tool.name = event.name
    if (event.args === undefined) return
    tool.args = event.args
    delete tool.argsText
  },
  tool_progress: (fold, event) => {
    const { message, progress } = event
    toolOf(fold, event).progress = given<Progress>({ message, progress })
  },
  tool_result: (fold, event) => {
    const tool = toolOf(fold, event)
    tool.result = event.result ?? null
    end(fold, tool)
  },
  tool_error: (fold, event) => {
    const { code, message } = event
    const tool = toolOf(fold, event)
    tool.error = given<Failure>({ code, message })
    end(fold, tool)
  },
  question_requested: (fold, event) => {
    const { options, question: title, requestId } = event
    request(fold, event, { type: "question", requestId, title, ...(options && { options }) })
  },
  question_resolved: (fold, event) => answer(fold, event, { answer: event.answer ?? null }),
  approval_requested: (fold, event) => {
    const { action: title, description, details, requestId } = event
    request(fold, event, given({ type: "approval", requestId, title, description, details } as const))
  },
  approval_resolved: (fold, event) => {
    const { approved, reason } = event
    answer(fold, event, reason === undefined ? { approved } : { approved, reason })
  },
  terminal_opened: (fold, event) => {
    const { command, cwd, terminalId } = event
    begin<TerminalPart>(fold, event, {
      type: "terminal",
      ...at(event),
      terminalId,
      command,
      cwd,
      output: "",
      inProgress: true
    })
  },
  terminal_output: (fold, event) => {
    const terminal = terminalOf(fold, event)
    terminal.output = tail(terminal.output + event.text, fold.limits.output)
  },
  terminal_exited: (fold, event) => {
    const { exitCode, signal } = event
    const terminal = terminalOf(fold, event)
    if (exitCode !== undefined) terminal.exitCode = exitCode
    if (signal !== undefined) terminal.signal = signal
    end(fold, terminal)
  },
  file_changed: (fold, event) => {
    const { change, hash, iteration, path, previousPath, size } = event
    begin<FilePart>(fold, event, { type: "file", ...at(event), change, path, previousPath, iteration, size, hash })
  },
  plan_updated: (fold, event) => {
    const known = messageOf(fold, event).parts.find(part => part.type === "plan")
    if (known === undefined) begin<PlanPart>(fold, event, { type: "plan", ...at(event), plan: event.plan })
    else {
      known.plan = event.plan
      fold.touched = known
    }
  },
  step_started: (fold, event) => {
    const { stepId, title } = event
    begin<StepPart>(fold, event, { type: "step", ...at(event), stepId, title, inProgress: true })
  },
  step_completed: (fold, event) => {
    const { status, stepId, title } = event
    const step = find<StepPart>(fold, event, `step ${stepId}`)
    if (step === undefined)
      return void begin<StepPart>(fold, event, { type: "step", ...at(event), stepId, title, status })
    if (title !== undefined) step.title = title
    if (status !== undefined) step.status = status
    end(fold, step)
  },
  subagent_started: (fold, event) => {
    const { agentType, subagentId, task } = event
    begin<SubagentPart>(fold, event, { type: "subagent", ...at(event), subagentId, agentType, task, inProgress: true })
  },
  subagent_completed: (fold, event) => {
    const { agentType, result, subagentId } = event
    const known = find<SubagentPart>(fold, event, `subagent ${subagentId}`)
    const part = known ?? begin<SubagentPart>(fold, event, { type: "subagent", ...at(event), subagentId })
    if (agentType !== undefined) part.agentType = agentType
    if (result !== undefined) part.result = result
    end(fold, part)
  },
  artifact_created: (fold, event) => {
    const { artifactId, mimeType, name, uri } = event
    begin<ArtifactPart>(fold, event, { type: "artifact", ...at(event), artifactId, name, mimeType, uri })
  },
  checkpoint_created: (fold, event) => {
    const { checkpointId, label } = event
    begin<CheckpointPart>(fold, event, { type: "checkpoint", ...at(event), checkpointId, label })
  },
  state_snapshot: () => {},
  state_delta: () => {},
  usage_update: (fold, event) => {
    const message = messageOf(fold, event)
    message.usage = added(message.usage ?? {}, event)
  },
  usage_context: ({ conversation }, { limit, percent, used }) => {
    conversation.context = { used, limit, percent }
  },
  rate_limited: (fold, event) => {
    const { message, retryAfterMs } = event
    begin<NoticePart>(fold, event, { type: "rate_limited", ...at(event), message, retryAfterMs })
  },
  error: (fold, event) => {
    const { code, message, retryable } = event
    begin<NoticePart>(fold, event, { type: "error", ...at(event), code, message, retryable })
  }
}

/** Adds the next event. An event that is in the conversation already, or of an unknown type, changes nothing. */
export const add = (fold: Fold, event: SessionEvent): void => {
  const { conversation } = fold
  if (event.seq <= conversation.seq) return
  conversation.seq = event.seq
  if (!Object.hasOwn(effects, event.type)) return
  fold.touched = undefined
  const effect = effects[event.type] as (fold: Fold, event: SessionEvent) => void
  effect(fold, event)
  if (fold.touched !== undefined) measure(fold, fold.touched)
  if (fold.size > fold.limits.all) shorten(fold)
}
