/**
 * The events of AG-UI for a client that follows a conversation. Pure: each event of the session is added to a fold, and
 * what it has changed there becomes events of the protocol, so that what a client makes of them is the projection.
 */

import * as Messages from "../../AgUi/Messages.ts"
import { type AgUiEvent, given } from "../../AgUi/Protocol.ts"
import type {
  AgentMessage,
  Conversation,
  Message,
  Part,
  StepPart,
  ToolPart
} from "../../Client/Conversation/Conversation.ts"
import * as Fold from "../../Client/Conversation/Fold.ts"
import type { SessionEvent } from "../../Client/SessionModel.ts"
import { isPatch } from "./JsonPatch.ts"

/** What a client knows of a part that may change. */
interface Known {
  readonly message: AgentMessage | undefined
  /** Whether its start was sent, and not its end. */
  isOpen: boolean
  /** Whether all arguments of a call were sent. */
  isWritten: boolean
  /** The text of a message or a thought, or the arguments of a call. */
  text: string
  /** Of a tool, a step or a subagent. */
  name: string
}

const textOf = (part: Part): string => {
  if (part.type === "tool") return Messages.argumentsOf(part)
  return part.type === "text" || part.type === "reasoning" ? part.text : ""
}

/** The events that become `CUSTOM` events. Their value is the event without its envelope. */
const customTypes: ReadonlySet<string> = new Set([
  ...["session_state", "tool_progress", "question_requested", "question_resolved", "approval_requested"],
  ...["approval_resolved", "terminal_opened", "terminal_output", "terminal_exited", "file_changed", "artifact_created"],
  ...["checkpoint_created", "usage_update", "usage_context", "rate_limited", "error"]
])

const custom = ({ seq, sessionId, timestamp, traceId, type, ...value }: SessionEvent): AgUiEvent => ({
  type: "CUSTOM",
  name: `causeway.${type}`,
  value
})

/** What is needed of a message that is complete: its plan, which may change, and that it has parts. */
const shell = (message: AgentMessage): AgentMessage => {
  const last = message.parts.findLast(Messages.isMessage)
  const parts = message.parts.flatMap((part): ReadonlyArray<Part> => {
    if (part.type === "plan") return [part]
    return part === last ? [{ type: "text", seq: part.seq, timestamp: part.timestamp, id: "", text: "" }] : []
  })
  return { ...message, parts }
}

/** What is needed to follow a conversation: the messages in progress and the last one, and the order of the others. */
const reduced = (conversation: Conversation): Conversation => ({
  ...conversation,
  messages: conversation.messages.map((message, index, { length }) => {
    if (message.role === "user") return { ...message, text: "" }
    const isKept =
      message.status === "running" || index === length - 1 || message.parts.some(part => "inProgress" in part)
    return isKept ? message : shell(message)
  })
})

const isDelta = ({ type }: SessionEvent): boolean => type.endsWith("_delta")

/** Whether no later event belongs to a part. A text without an id continues while it is the last part of its message. */
const isComplete = (part: Part, message: AgentMessage | undefined): boolean => {
  if ((part.type === "text" || part.type === "reasoning") && part.id === undefined) {
    return message?.parts.at(-1) !== part || (message.turnId !== undefined && message.status !== "running")
  }
  return !("inProgress" in part)
}

/** Translates the events of a session for one client, from a state of its conversation on. */
export class Translation {
  /** What is kept of the conversation. */
  readonly fold: Fold.Fold
  private readonly known = new Map<Part, Known>()
  /** The ids of messages other than results, in the order in which the client has them. */
  private readonly order: Set<string>
  private readonly steps = new Set<string>()
  private readonly subagents = new Set<string>()
  private isDifferent = false
  private events: Array<AgUiEvent> = []

  /**
   * The client has the messages of the conversation, by {@link Messages.snapshots} for example. Without the agent's state
   * it cannot apply changes of it.
   */
  constructor(
    conversation: Conversation,
    readonly names: Messages.Names,
    private hasState: boolean
  ) {
    this.fold = Fold.resume(reduced(conversation))
    for (const message of this.fold.conversation.messages) {
      if (message.role === "user") continue
      for (const part of message.parts) if (!isComplete(part, message)) this.learn(part, message, true)
    }
    this.order = new Set(this.ids())
  }

  /** The conversation, in which the parts of messages that were complete at the start are missing. */
  get conversation(): Conversation {
    return this.fold.conversation
  }

  /** The starts of what is in progress, without content. */
  begin(): ReadonlyArray<AgUiEvent> {
    for (const [part, known] of this.known) {
      if ("inProgress" in part && !(part.type === "tool" && known.isWritten)) this.start(part, known)
    }
    return this.take()
  }

  /** The events that the next event of the session becomes. */
  add(event: SessionEvent): ReadonlyArray<AgUiEvent> {
    const { fold } = this
    fold.touched = undefined
    Fold.add(fold, event)
    const part = fold.touched as Part | undefined
    const isUsual = isDelta(event) && part !== undefined && this.known.has(part)
    if (!isUsual) this.endComplete(part)
    if (event.type === "turn_started" && event.content !== undefined) this.user(event)
    if (part !== undefined) this.change(part, event)
    if (!isUsual) this.endComplete(undefined)
    if (event.type === "state_snapshot") {
      this.hasState = true
      this.send({ type: "STATE_SNAPSHOT", snapshot: event.state })
    } else if (event.type === "state_delta" && this.hasState && isPatch(event.patch)) {
      this.send({ type: "STATE_DELTA", delta: event.patch })
    } else if (event.type === "state_delta" || customTypes.has(event.type)) this.events.push(custom(event))
    return this.take()
  }

  /** The ends of what is in progress, before the end of the run. */
  end(): ReadonlyArray<AgUiEvent> {
    for (const [part, known] of this.known) this.close(part, known)
    return this.take()
  }

  /** Whether the messages of the client differ from the projection, in a text or in their order. */
  get needsSnapshot(): boolean {
    const order = [...this.order]
    return this.isDifferent || this.ids().some((id, at) => id !== order[at])
  }

  private ids(): ReadonlyArray<string> {
    return Messages.messagesOf(this.conversation, this.names).flatMap(({ id, role }) => (role === "tool" ? [] : [id]))
  }

  private take(): ReadonlyArray<AgUiEvent> {
    const { events } = this
    this.events = []
    return events
  }

  /** `isKnown` is whether the client has what there is of the part. */
  private learn(part: Part, message: AgentMessage | undefined, isKnown: boolean): Known {
    const [isWritten, name] = part.type === "tool" ? [isKnown && "args" in part, part.name] : [false, ""]
    const known: Known = { message, isOpen: false, isWritten, text: isKnown ? textOf(part) : "", name }
    this.known.set(part, known)
    return known
  }

  /** What the client knows of a part: nothing if the event has started it. */
  private knownOf(part: Part): Known {
    const ofPart = (message: Message): message is AgentMessage =>
      message.role === "agent" && message.parts.at(-1) === part
    return this.known.get(part) ?? this.learn(part, this.conversation.messages.findLast(ofPart), false)
  }

  private user(event: Extract<SessionEvent, { readonly type: "turn_started" }>): void {
    const results = Messages.resultsIn(given({ clientMessageId: event.clientMessageId, text: event.content ?? "" }))
    for (const { content, id, toolCallId } of results ?? []) {
      this.send({ type: "TOOL_CALL_RESULT", messageId: id, toolCallId, role: "tool", content })
    }
    if (results !== undefined) return
    const messageId = this.names.user(event)
    if (this.order.has(messageId)) return
    this.order.add(messageId)
    this.events.push(
      { type: "TEXT_MESSAGE_START", messageId, role: "user" },
      { type: "TEXT_MESSAGE_CONTENT", messageId, delta: event.content ?? "" },
      { type: "TEXT_MESSAGE_END", messageId }
    )
  }

  private change(part: Part, event: SessionEvent): void {
    const known = this.knownOf(part)
    if (part.type === "tool") return this.tool(part, known, event)
    if (!known.isOpen) this.start(part, known)
    if (part.type !== "text" && part.type !== "reasoning") return
    let delta: string | undefined
    if (event.type === "text_delta" || event.type === "thinking_delta") delta = event.text
    else if (part.text.startsWith(known.text)) delta = part.text.slice(known.text.length)
    known.text = part.text
    const type = part.type === "text" ? "TEXT_MESSAGE_CONTENT" : "REASONING_MESSAGE_CONTENT"
    if (delta === undefined) this.isDifferent = true
    else if (delta !== "") this.send({ type, messageId: this.names.message(part), delta })
  }

  private tool(part: ToolPart, known: Known, event: SessionEvent): void {
    const toolCallId = this.names.call(part)
    const isWriting = event.type === "tool_call_delta" && !("args" in part)
    // A second start gives a call another name.
    const isRenamed = known.name !== part.name
    if (isRenamed) this.close(part, known)
    if (!known.isOpen && (isRenamed || isWriting || !known.isWritten)) this.start(part, known)
    if (isWriting) {
      known.text += event.text
      this.send({ type: "TOOL_CALL_ARGS", toolCallId, delta: event.text })
    }
    const result = Messages.resultOf(part)
    if (event.type === "tool_call" || result !== undefined) this.completeTool(part, known)
    if (result === undefined) return
    this.known.delete(part)
    const messageId = this.names.result(part)
    this.send({ type: "TOOL_CALL_RESULT", messageId, toolCallId, role: "tool", ...result })
  }

  /** Sends what is missing of a call whose arguments are complete. */
  private completeTool(part: ToolPart, known: Known): void {
    const text = Messages.argumentsOf(part)
    if (known.isOpen && text.startsWith(known.text)) {
      const delta = text.slice(known.text.length)
      if (delta !== "") this.send({ type: "TOOL_CALL_ARGS", toolCallId: this.names.call(part), delta })
    } else if (!Messages.isSameJson(known.text, text)) this.isDifferent = true
    known.text = text
    this.close(part, known)
    known.isWritten = true
  }

  private endComplete(except: Part | undefined): void {
    for (const [part, known] of this.known) {
      if (part === except || !isComplete(part, known.message)) continue
      this.close(part, known)
      this.known.delete(part)
    }
  }

  private start(part: Part, known: Known): void {
    const messageId = this.names.message(part)
    known.isOpen = true
    if (Messages.isMessage(part)) this.order.add(messageId)
    switch (part.type) {
      case "text":
        return this.send({ type: "TEXT_MESSAGE_START", messageId, role: "assistant" })
      case "reasoning":
        this.send({ type: "REASONING_START", messageId })
        return this.send({ type: "REASONING_MESSAGE_START", messageId, role: "reasoning" })
      case "tool": {
        Object.assign(known, { isWritten: false, name: part.name })
        const call = { toolCallId: this.names.call(part), toolCallName: part.name }
        return this.send({ type: "TOOL_CALL_START", ...call, parentMessageId: messageId })
      }
      case "plan": {
        const content = { plan: part.plan ?? null }
        return this.send({ type: "ACTIVITY_SNAPSHOT", messageId, activityType: Messages.planActivity, content })
      }
      case "step": {
        known.name = this.stepName(part)
        this.steps.add(known.name)
        return this.send({ type: "STEP_STARTED", stepName: known.name })
      }
      case "subagent": {
        const { agentType: name = "subagent", subagentId, task } = part
        // The client refuses a second subagent with the same id.
        known.name = this.subagents.has(subagentId) ? `${subagentId}-${messageId}` : subagentId
        this.subagents.add(known.name)
        const description = task === undefined ? {} : { description: task }
        return this.send({ type: "SUBAGENT_STARTED", subagentRunId: known.name, name, ...description })
      }
    }
  }

  /** The client refuses two open steps of one name. */
  private stepName({ seq, stepId, title = stepId }: StepPart): string {
    return [title, `${title} (${stepId})`].find(name => !this.steps.has(name)) ?? `${title} (${seq})`
  }

  private close(part: Part, known: Known): void {
    if (!known.isOpen) return
    known.isOpen = false
    const messageId = this.names.message(part)
    switch (part.type) {
      case "text":
        return this.send({ type: "TEXT_MESSAGE_END", messageId })
      case "reasoning":
        this.send({ type: "REASONING_MESSAGE_END", messageId })
        return this.send({ type: "REASONING_END", messageId })
      case "tool":
        return this.send({ type: "TOOL_CALL_END", toolCallId: this.names.call(part) })
      case "step":
        this.steps.delete(known.name)
        return this.send({ type: "STEP_FINISHED", stepName: known.name })
      case "subagent": {
        const result = part.result == null ? {} : { result: part.result }
        return this.send({ type: "SUBAGENT_FINISHED", subagentRunId: known.name, ...result })
      }
    }
  }

  private send(event: AgUiEvent): void {
    this.events.push(event)
  }
}
