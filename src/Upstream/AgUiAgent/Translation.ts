/**
 * The events of AG-UI as events of the agent platform. Pure.
 *
 * It is lenient: an event that does not fit what came before changes nothing, and unknown ones are counted as dropped. A
 * turn starts once and ends at most once, whatever the agent sends.
 */
import { Either } from "effect"
import { planActivity } from "../../AgUi/Messages.ts"
import { isObject, type JsonObject, parseWellFormed } from "../../base/Json/Parsing.ts"
import type { PlatformEvent } from "../PlatformEvent.ts"
import * as Interrupts from "./Interrupts.ts"

/** What a run has come to. */
export type State =
  | { readonly is: "running" }
  /**
   * The run has ended, and the turn ends with the stream: some agents end a run with each answer of their model, and continue
   * when their tools have run. `isCalling`: calls have no result.
   */
  | { readonly is: "finished"; readonly isCalling: boolean }
  /** The turn has ended. */
  | { readonly is: "ended" }
  /** The run has ended, and the turn continues after a person has answered. */
  | { readonly is: "asking"; readonly interrupts: ReadonlyArray<Interrupts.Interrupt> }

type Payload = JsonObject & { readonly type: string }

/** Characters of the arguments of a call, above which they are only passed as text. */
const longestArguments = 1024 * 1024

/** The limits of the structure of arguments. */
const shape = { levels: 1000, members: 32_768 }

/** Open messages, calls and steps of a turn, of each; further ones are dropped. */
const maxKept = 10_000

/** Ids of messages and calls that are kept, of those that the agent was sent and of its own. */
const maxKnown = 200_000

interface Call {
  readonly name: string
  text: string
}

const text = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined)

/** The counts of `TokenUsage`, by the names of the platform. */
const usageNames = {
  inputTokens: "inputTokens",
  outputTokens: "outputTokens",
  totalTokens: "totalTokens",
  cachedInputTokens: "cacheReadTokens",
  cacheWriteInputTokens: "cacheWriteTokens",
  model: "model"
} as const

/** The kinds of text, with the events of the platform and the name of their ids. */
const kinds = {
  message: { name: "messageId", type: "message" },
  thinking: { name: "thinkingId", type: "thinking" }
} as const
type Kind = keyof typeof kinds

/** Translates the runs of one turn. */
export class Translation {
  private current: State = { is: "running" }
  private isStarted = false
  /** By kind and id. */
  private readonly texts = new Map<string, readonly [kind: Kind, id: string]>()
  private readonly calls = new Map<string, Call>()
  /** Complete calls without a result. */
  private readonly pending = new Set<string>()
  /** Open steps, the oldest first. */
  private steps: Array<{ readonly id: string; readonly name: string }> = []
  private count = 0
  /** What the last chunk belongs to, which has no event of its own for its end. */
  private chunk: { readonly kind: Kind | "call"; readonly id: string } | undefined
  /** The message of the events of thoughts in the form without ids. */
  private thought = ""
  /** Whether the agent has sent messages as events, and not only as a whole. */
  private hasStreamed = false
  private out: Array<PlatformEvent> = []
  private input: PlatformEvent | undefined

  /** The ids of messages and calls that are not new. */
  private readonly known = new Set<string>()

  constructor(private readonly turnId: string) {}

  get state(): State {
    return this.current
  }

  /** Continues the turn, by a run with the answers. */
  resume(): void {
    if (this.current.is === "asking") this.current = { is: "running" }
  }

  learn(ids: Iterable<string>): void {
    for (const id of ids) if (this.known.size < maxKnown) this.known.add(id)
  }

  /** The events that an event of AG-UI becomes. There are none after the end of the run. */
  add(event: PlatformEvent): ReadonlyArray<PlatformEvent> {
    if (this.current.is === "finished" && event.type !== "RUN_FINISHED") this.current = { is: "running" }
    if (this.current.is !== "running") return []
    this.input = event
    if (!this.isStarted) {
      this.isStarted = true
      this.emit({ type: "turn.started" })
    }
    const { payload, type } = event
    if (!type.endsWith("_CHUNK") && type !== "RAW" && type !== "CUSTOM") this.endChunk()
    const effect = effects.get(type)
    if (effect === undefined) this.drop(type)
    else effect(this, payload)
    this.input = undefined
    return this.take()
  }

  /** Ends the turn after its run, at the end of the stream. */
  close(): ReadonlyArray<PlatformEvent> {
    return this.current.is === "finished" ? this.finish({ type: "turn.completed" }) : []
  }

  /** Ends the turn, unless it has ended. */
  fail(code: string, message: string, retryable = true): ReadonlyArray<PlatformEvent> {
    return this.current.is === "finished"
      ? this.close()
      : this.finish({ type: "turn.failed", code, message, retryable })
  }

  /** Ends the turn because a person has stopped it. */
  cancel(): ReadonlyArray<PlatformEvent> {
    return this.finish({ type: "turn.cancelled" })
  }

  private finish(payload: Payload): ReadonlyArray<PlatformEvent> {
    if (this.current.is === "ended") return []
    this.end(payload)
    return this.take()
  }

  private take(): ReadonlyArray<PlatformEvent> {
    const { out } = this
    this.out = []
    return out
  }

  /** @internal */
  emit(payload: Payload, asSent?: JsonObject): void {
    const named = { ...payload, turnId: this.turnId }
    const { size = 0, timestamp } = this.input ?? {}
    const sent = asSent === undefined ? undefined : { ...asSent, turnId: this.turnId }
    this.out.push({ id: undefined, type: payload.type, timestamp, payload: named, size, asSent: sent })
  }

  /** An event that clients do not get is counted by its type. */
  drop(type: string): void {
    this.emit({ type: `ag_ui.${type.slice(0, 64)}` })
  }

  private end(payload: Payload): void {
    this.closeAll()
    this.current = { is: "ended" }
    this.emit(payload)
  }

  private closeAll(): void {
    this.chunk = undefined
    for (const [kind, id] of this.texts.values()) this.endText(kind, id)
    for (const id of this.calls.keys()) this.endCall(id)
  }

  // Texts

  startText(kind: Kind, id: unknown, role?: unknown): void {
    if (text(id) === undefined || this.texts.has(`${kind} ${id}`)) return
    // A message of another role is not the agent's.
    if (role !== undefined && role !== null && role !== "assistant" && role !== "reasoning") return
    if (this.texts.size < maxKept) this.texts.set(`${kind} ${id}`, [kind, id as string])
    this.learn([id as string])
    this.hasStreamed = true
    this.emit({ type: `${kinds[kind].type}.start`, [kinds[kind].name]: id })
  }

  addText(kind: Kind, id: unknown, delta: unknown): void {
    if (typeof delta !== "string" || !this.texts.has(`${kind} ${String(id)}`)) return this.drop("TEXT")
    const { name, type } = kinds[kind]
    const sent = this.input?.asSent
    const payload = { type: `${type}.delta`, [name]: id, delta }
    this.emit(payload, sent === undefined ? undefined : { ...payload, delta: sent.delta })
  }

  endText(kind: Kind, id: unknown): void {
    if (this.texts.delete(`${kind} ${String(id)}`)) {
      this.emit({ type: `${kinds[kind].type}.complete`, [kinds[kind].name]: id })
    }
  }

  /** A piece of a text that names its message only at first. */
  chunkText(kind: Kind, { delta, messageId, role }: JsonObject): void {
    const id = text(messageId) ?? (this.chunk?.kind === kind ? this.chunk.id : undefined)
    if (id === undefined) return
    if (this.chunk?.kind !== kind || this.chunk.id !== id) this.endChunk()
    this.startText(kind, id, role)
    this.chunk = { kind, id }
    if (text(delta) !== undefined) this.addText(kind, id, delta)
  }

  private endChunk(): void {
    const { chunk } = this
    this.chunk = undefined
    if (chunk === undefined) return
    if (chunk.kind === "call") this.endCall(chunk.id)
    else this.endText(chunk.kind, chunk.id)
  }

  startThought(): void {
    this.thought = `thought-${++this.count}`
    this.startText("thinking", this.thought)
  }

  addThought(delta: unknown): void {
    this.addText("thinking", this.thought, delta)
  }

  endThought(): void {
    this.endText("thinking", this.thought)
  }

  // Tools

  startCall({ parentMessageId, toolCallId, toolCallName }: JsonObject): void {
    const [callId, name] = [text(toolCallId), text(toolCallName)]
    if (callId === undefined || name === undefined || this.calls.has(callId)) return
    if (this.calls.size < maxKept) this.calls.set(callId, { name, text: "" })
    this.learn([text(parentMessageId) ?? callId])
    this.hasStreamed = true
    this.emit({ type: "tool.call.start", callId, name })
  }

  addArguments(id: unknown, delta: unknown): void {
    const call = this.calls.get(String(id))
    if (call === undefined || typeof delta !== "string") return
    if (call.text.length <= longestArguments) call.text += delta
    const sent = this.input?.asSent
    const payload = { type: "tool.call.delta", callId: id, delta }
    this.emit(payload, sent === undefined ? undefined : { ...payload, delta: sent.delta })
  }

  endCall(id: unknown): void {
    const callId = String(id)
    const call = this.calls.get(callId)
    if (call === undefined) return
    this.calls.delete(callId)
    if (this.pending.size < maxKept) this.pending.add(callId)
    const { name, text: written } = call
    const args =
      written.length > longestArguments
        ? Either.left("")
        : written === ""
          ? Either.right({})
          : parseWellFormed(written, shape)
    this.emit({ type: "tool.call", callId, name, ...(Either.isRight(args) ? { args: args.right } : {}) })
  }

  chunkCall(payload: JsonObject): void {
    const id = text(payload.toolCallId) ?? (this.chunk?.kind === "call" ? this.chunk.id : undefined)
    if (id === undefined) return
    if (this.chunk?.kind !== "call" || this.chunk.id !== id) this.endChunk()
    this.startCall({ ...payload, toolCallId: id })
    this.chunk = { kind: "call", id }
    if (text(payload.delta) !== undefined) this.addArguments(id, payload.delta)
  }

  result({ content, messageId, metadata, toolCallId }: JsonObject): void {
    const callId = text(toolCallId)
    if (callId === undefined) return
    this.endCall(callId)
    this.pending.delete(callId)
    if (text(messageId) !== undefined) this.learn([messageId as string])
    const error = isObject(metadata) ? metadata["causeway.error"] : undefined
    this.emit(
      isObject(error) ? { type: "tool.error", callId, error } : { type: "tool.result", callId, result: content ?? null }
    )
  }

  // Steps

  startStep(name: unknown): void {
    if (typeof name !== "string" || this.steps.length >= maxKept) return
    const id = `step-${++this.count}`
    this.steps.push({ id, name })
    this.emit({ type: "step.started", stepId: id, title: name })
  }

  endStep(name: unknown): void {
    const step = this.steps.findLast(open => open.name === name)
    if (step === undefined) return
    this.steps = this.steps.filter(open => open !== step)
    this.emit({ type: "step.completed", stepId: step.id, title: step.name })
  }

  // Messages as a whole

  /**
   * The messages of the agent after the last one of a user, from an agent that sends them only as a whole. Many send them
   * as events and then again, some with other ids.
   */
  snapshot(messages: unknown): void {
    if (!Array.isArray(messages) || this.hasStreamed) return
    const isUser = (message: unknown) => isObject(message) && message.role === "user"
    const last = messages.findLastIndex(isUser)
    for (const message of messages.slice(last + 1)) if (isObject(message)) this.whole(message)
    this.hasStreamed = false
  }

  private whole({ content, id, role, toolCallId, toolCalls }: JsonObject): void {
    if (text(id) === undefined || this.known.has(id as string)) return
    if (role === "tool") return this.result({ content, messageId: id, toolCallId })
    if (role !== "assistant") return
    if (text(content) !== undefined) {
      this.startText("message", id)
      this.emit({ type: "message.delta", messageId: id, delta: content })
      this.endText("message", id)
    }
    for (const call of Array.isArray(toolCalls) ? toolCalls : []) {
      if (!isObject(call) || !isObject(call.function) || this.known.has(String(call.id))) continue
      this.startCall({ toolCallId: call.id, toolCallName: call.function.name, parentMessageId: id })
      this.learn([String(call.id)])
      this.addArguments(call.id, call.function.arguments)
      this.endCall(call.id)
    }
  }

  // Others

  activity({ activityType, content }: JsonObject): void {
    if (activityType === planActivity && isObject(content)) this.emit({ type: "plan.updated", plan: content.plan })
    else this.drop("ACTIVITY")
  }

  /** The events that another gateway passes on unchanged. */
  custom({ name, value }: JsonObject): void {
    if (typeof name !== "string" || !isObject(value)) return this.drop("CUSTOM")
    if (name === "causeway.file_changed") return this.file(value)
    const type = passed.get(name)
    if (type === undefined) this.drop("CUSTOM")
    else this.emit({ ...value, type })
  }

  private file({ change, path, previousPath, ...members }: JsonObject): void {
    if (change === "renamed") this.emit({ ...members, type: "file.renamed", from: previousPath, to: path })
    else if (change === "created" || change === "modified" || change === "deleted") {
      this.emit({ ...members, type: `file.${change}`, path })
    } else this.drop("CUSTOM")
  }

  usage(usage: unknown): void {
    for (const one of Array.isArray(usage) ? usage : []) {
      if (!isObject(one)) continue
      const counts = Object.entries(usageNames).flatMap(([name, ours]) =>
        one[name] === undefined || one[name] === null ? [] : [[ours, one[name]] as const]
      )
      if (counts.length > 0) this.emit({ type: "usage", ...Object.fromEntries(counts) })
    }
  }

  finished({ outcome, usage }: JsonObject): void {
    this.usage(usage)
    const interrupts = Interrupts.interruptsOf(outcome)
    if (interrupts.length > 0) {
      this.closeAll()
      for (const interrupt of interrupts) this.emit(Interrupts.requestOf(interrupt, this.turnId))
      this.current = { is: "asking", interrupts }
      return
    }
    const type = isObject(outcome) ? outcome.type : undefined
    if (type === "interrupt") {
      const message = "The agent has asked a person in a form that is not understood"
      return this.end({ type: "turn.failed", code: "agent_malformed", message, retryable: false })
    }
    if (type === "cancelled") return this.end({ type: "turn.cancelled" })
    this.closeAll()
    this.current = { is: "finished", isCalling: this.pending.size > 0 }
  }

  failed({ code, message, metadata, usage }: JsonObject): void {
    this.usage(usage)
    const retryable = isObject(metadata) && metadata["causeway.retryable"] === true
    this.end({
      ...{ type: "turn.failed", retryable },
      code: text(code) ?? "agent_error",
      message: text(message) ?? "The agent reported an error"
    })
  }
}

/** The names of `CUSTOM` events that have an event of the platform of the same fields, with its type. */
const passed: ReadonlyMap<string, string> = new Map(
  Object.entries({
    tool_progress: "tool.progress",
    terminal_opened: "terminal.opened",
    terminal_output: "terminal.output",
    terminal_exited: "terminal.exited",
    artifact_created: "artifact.created",
    checkpoint_created: "checkpoint.created",
    usage_context: "usage",
    rate_limited: "rate_limited",
    error: "error"
  }).map(([name, type]) => [`causeway.${name}`, type])
)

const nothing = () => {}

/** What each event of AG-UI does. */
const effects: ReadonlyMap<string, (run: Translation, payload: JsonObject) => void> = new Map(
  Object.entries<(run: Translation, payload: JsonObject) => void>({
    RUN_STARTED: nothing,
    RUN_FINISHED: (run, payload) => run.finished(payload),
    RUN_ERROR: (run, payload) => run.failed(payload),

    TEXT_MESSAGE_START: (run, { messageId, role }) => run.startText("message", messageId, role),
    TEXT_MESSAGE_CONTENT: (run, { delta, messageId }) => run.addText("message", messageId, delta),
    TEXT_MESSAGE_END: (run, { messageId }) => run.endText("message", messageId),
    TEXT_MESSAGE_CHUNK: (run, payload) => run.chunkText("message", payload),

    REASONING_START: nothing,
    REASONING_END: nothing,
    REASONING_MESSAGE_START: (run, { messageId }) => run.startText("thinking", messageId),
    REASONING_MESSAGE_CONTENT: (run, { delta, messageId }) => run.addText("thinking", messageId, delta),
    REASONING_MESSAGE_END: (run, { messageId }) => run.endText("thinking", messageId),
    REASONING_MESSAGE_CHUNK: (run, payload) => run.chunkText("thinking", payload),
    // The names before version 0.0.45 of the protocol.
    THINKING_START: nothing,
    THINKING_END: nothing,
    THINKING_TEXT_MESSAGE_START: run => run.startThought(),
    THINKING_TEXT_MESSAGE_CONTENT: (run, { delta }) => run.addThought(delta),
    THINKING_TEXT_MESSAGE_END: run => run.endThought(),

    TOOL_CALL_START: (run, payload) => run.startCall(payload),
    TOOL_CALL_ARGS: (run, { delta, toolCallId }) => run.addArguments(toolCallId, delta),
    TOOL_CALL_END: (run, { toolCallId }) => run.endCall(toolCallId),
    TOOL_CALL_CHUNK: (run, payload) => run.chunkCall(payload),
    TOOL_CALL_RESULT: (run, payload) => run.result(payload),

    STEP_STARTED: (run, { stepName }) => run.startStep(stepName),
    STEP_FINISHED: (run, { stepName }) => run.endStep(stepName),

    STATE_SNAPSHOT: (run, { snapshot }) => run.emit({ type: "state.snapshot", state: snapshot }),
    STATE_DELTA: (run, { delta }) => run.emit({ type: "state.delta", patch: delta }),
    MESSAGES_SNAPSHOT: (run, { messages }) => run.snapshot(messages),

    SUBAGENT_STARTED: (run, { description: task, name: agentType, subagentRunId: subagentId }) =>
      run.emit({ type: "subagent.started", subagentId, agentType, task }),
    SUBAGENT_FINISHED: (run, { result, subagentRunId: subagentId }) =>
      run.emit({ type: "subagent.completed", subagentId, result }),
    ACTIVITY_SNAPSHOT: (run, payload) => run.activity(payload),
    CUSTOM: (run, payload) => run.custom(payload)
  })
)
