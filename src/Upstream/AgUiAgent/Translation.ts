/**
 * The events of AG-UI as events of the agent platform. Pure.
 *
 * It is lenient: text comes even if its message has no start, and unknown events are counted as dropped. A turn starts once
 * and ends at most once, whatever the agent sends.
 */
import { Either } from "effect"
import { contentOf, planActivity } from "../../AgUi/Messages.ts"
import type { Message } from "../../AgUi/Protocol.ts"
import { isObject, type JsonObject, parseWellFormed } from "../../base/Json/Parsing.ts"
import type { PlatformEvent } from "../PlatformEvent.ts"
import { identifierOf } from "./Identifier.ts"
import * as Interrupts from "./Interrupts.ts"

/** What a run has come to. */
export type State =
  | { readonly is: "running" }
  /**
   * The run has ended and calls of the agent's own tools have no result. Some agents end a run with each answer of their
   * model, and continue in the same stream when their tools have run; otherwise the turn ends with the stream.
   */
  | { readonly is: "calling" }
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

/** Calls and results of a turn that are kept, to recognize them in a snapshot of messages. */
const maxSeen = 200_000

/** Events after which a run that had ended continues. */
const continuing = /_(?:STARTED|START|CONTENT|ARGS|CHUNK|RESULT)$/

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
  /** By kind and id. Those that are not the agent's, such as messages of users, are left out. */
  private readonly texts = new Map<string, { readonly kind: Kind; readonly id: string; readonly isLeftOut: boolean }>()
  private readonly calls = new Map<string, Call>()
  /** Complete calls of the agent's own tools without a result. */
  private readonly pending = new Set<string>()
  /** Open steps, the oldest first. */
  private steps: Array<{ readonly id: string; readonly name: string }> = []
  private count = 0
  /** What the last chunk belongs to, which has no event of its own for its end. */
  private chunk: { readonly kind: Kind | "call"; readonly id: string } | undefined
  /** What the agent has sent as events, and not only as a whole. */
  private readonly streamed = new Set<Kind | "call">()
  /** The texts of the last snapshot, by kind and id. */
  private whole = new Map<string, string>()
  /** Calls and results, by their ids. */
  private readonly seen = new Set<string>()
  private out: Array<PlatformEvent> = []
  private input: PlatformEvent | undefined
  private history: ReadonlyArray<Message> = []
  private clientTools: ReadonlySet<unknown> = new Set()

  constructor(private readonly turnId: string) {}

  get state(): State {
    return this.current
  }

  /** Continues the turn, by a run with the answers. */
  resume(): void {
    this.pending.clear()
    if (this.current.is === "asking") this.current = { is: "running" }
  }

  /** What the agent was sent: messages, and the names of the tools that the client runs. */
  learn(history: ReadonlyArray<Message>, clientTools: ReadonlyArray<unknown>): void {
    this.history = history
    this.clientTools = new Set(clientTools)
  }

  /** The events that an event of AG-UI becomes. There are none after the end of the run. */
  add(event: PlatformEvent): ReadonlyArray<PlatformEvent> {
    if (this.current.is === "calling" && continuing.test(event.type)) this.current = { is: "running" }
    if (this.current.is === "ended" || this.current.is === "asking") return []
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

  /** Ends the turn with the stream. */
  complete(): ReadonlyArray<PlatformEvent> {
    return this.finish({ type: "turn.completed" })
  }

  /** Ends the turn, unless it has ended. It is complete if its last run has ended. */
  fail(code: string, message: string, retryable = true): ReadonlyArray<PlatformEvent> {
    return this.current.is === "calling"
      ? this.complete()
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
    for (const { id, kind } of this.texts.values()) this.endText(kind, id)
    for (const id of this.calls.keys()) this.endCall(id)
  }

  // Texts

  /** The text of an id; without one the newest that is open. */
  private openText(kind: Kind, id: unknown) {
    const name = identifierOf(id)
    return name === undefined
      ? [...this.texts.values()].findLast(open => open.kind === kind)
      : this.texts.get(`${kind} ${name}`)
  }

  startText(kind: Kind, id: unknown, role?: unknown): string {
    const name = identifierOf(id) ?? `${kind}-${++this.count}`
    const key = `${kind} ${name}`
    if (this.texts.has(key)) return name
    const isLeftOut = !["assistant", "reasoning", undefined, null].includes(role as string)
    if (this.texts.size < maxKept) this.texts.set(key, { kind, id: name, isLeftOut })
    if (!isLeftOut) this.emit({ type: `${kinds[kind].type}.start`, [kinds[kind].name]: name })
    return name
  }

  addText(kind: Kind, messageId: unknown, delta: unknown): void {
    if (typeof delta !== "string") return this.drop("TEXT")
    const open = this.openText(kind, messageId)
    if (open?.isLeftOut === true) return
    const id = open?.id ?? this.startText(kind, messageId)
    this.streamed.add(kind)
    this.write({ type: `${kinds[kind].type}.delta`, [kinds[kind].name]: id }, delta)
  }

  endText(kind: Kind, messageId: unknown): void {
    const open = this.openText(kind, messageId)
    if (open === undefined) return
    this.texts.delete(`${kind} ${open.id}`)
    if (!open.isLeftOut) this.emit({ type: `${kinds[kind].type}.complete`, [kinds[kind].name]: open.id })
  }

  /** A piece of a text that names its message only at first. */
  chunkText(kind: Kind, { delta, messageId, role }: JsonObject): void {
    const named = identifierOf(messageId) ?? (this.chunk?.kind === kind ? this.chunk.id : undefined)
    if (named === undefined || this.chunk?.kind !== kind || this.chunk.id !== named) this.endChunk()
    const id = this.startText(kind, named, role)
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

  /** Emits a piece of a text, with the halves of characters that it may have. */
  private write(payload: Payload, delta: string): void {
    const sent = this.input?.asSent?.delta
    this.emit({ ...payload, delta }, typeof sent === "string" ? { ...payload, delta: sent } : undefined)
  }

  // Tools

  startCall({ toolCallId, toolCallName }: JsonObject): void {
    const callId = identifierOf(toolCallId)
    if (callId === undefined || this.calls.has(callId)) return
    const name = text(toolCallName) ?? "unknown"
    if (this.calls.size < maxKept) this.calls.set(callId, { name, text: "" })
    this.isNew(`call ${callId}`)
    this.emit({ type: "tool.call.start", callId, name })
  }

  addArguments(id: unknown, delta: unknown): void {
    const callId = identifierOf(id) ?? ""
    const call = this.calls.get(callId)
    if (call === undefined || typeof delta !== "string") return this.drop("TOOL_CALL_ARGS")
    if (call.text.length <= longestArguments) call.text += delta
    this.write({ type: "tool.call.delta", callId }, delta)
  }

  endCall(id: unknown): void {
    const callId = identifierOf(id) ?? ""
    const call = this.calls.get(callId)
    if (call === undefined) return
    this.calls.delete(callId)
    const { name, text: written } = call
    if (this.pending.size < maxKept && !this.clientTools.has(name)) this.pending.add(callId)
    const args =
      written.length > longestArguments
        ? Either.left("")
        : written === ""
          ? Either.right({})
          : parseWellFormed(written, shape)
    this.emit({ type: "tool.call", callId, name, ...(Either.isRight(args) ? { args: args.right } : {}) })
  }

  startStreamedCall(payload: JsonObject): void {
    this.streamed.add("call")
    this.startCall(payload)
  }

  chunkCall(payload: JsonObject): void {
    const id = identifierOf(payload.toolCallId) ?? (this.chunk?.kind === "call" ? this.chunk.id : undefined)
    if (id === undefined) return this.drop("TOOL_CALL_CHUNK")
    if (this.chunk?.kind !== "call" || this.chunk.id !== id) this.endChunk()
    this.startStreamedCall({ ...payload, toolCallId: id })
    this.chunk = { kind: "call", id }
    if (text(payload.delta) !== undefined) this.addArguments(id, payload.delta)
  }

  result({ content, metadata, toolCallId }: JsonObject): void {
    const callId = identifierOf(toolCallId)
    if (callId === undefined) return this.drop("TOOL_CALL_RESULT")
    this.endCall(callId)
    this.pending.delete(callId)
    this.isNew(`result ${callId}`)
    const error = isObject(metadata) ? metadata["causeway.error"] : undefined
    this.emit(
      isObject(error) ? { type: "tool.error", callId, error } : { type: "tool.result", callId, result: content ?? null }
    )
  }

  private isNew(key: string): boolean {
    if (this.seen.has(key)) return false
    if (this.seen.size < maxSeen) this.seen.add(key)
    return true
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
   * What is new in the messages after the last one of a user, from an agent that sends them only as a whole. Many send them
   * as events and then again, some with other ids, and some use an id in several turns.
   */
  snapshot(messages: unknown): void {
    if (!Array.isArray(messages)) return
    const last = messages.findLastIndex(message => isObject(message) && message.role === "user")
    // Without a message of a user, those that the agent was sent may be among them.
    const before = new Map([...(last < 0 ? this.recognize() : []), ...this.whole])
    this.whole = new Map()
    for (const message of messages.slice(last + 1)) {
      if (!isObject(message)) continue
      if (message.role === "tool" && !this.seen.has(`result ${identifierOf(message.toolCallId)}`)) this.result(message)
      if (message.role === "assistant") this.wholeText("message", message, before)
      if (message.role === "assistant") this.wholeCalls(message)
      if (message.role === "reasoning") this.wholeText("thinking", message, before)
    }
  }

  /** Records the calls that the agent was sent. Returns the texts, by kind and id. */
  private recognize(): ReadonlyArray<readonly [string, string]> {
    return this.history.flatMap(message => {
      if (message.role === "tool") this.isNew(`result ${message.toolCallId}`)
      if (message.role !== "assistant") return []
      for (const { id } of message.toolCalls ?? []) this.isNew(`call ${id}`)
      return [[`message ${identifierOf(message.id)}`, message.content ?? ""] as const]
    })
  }

  /** A text of a snapshot, or what it has more than in the snapshot before. */
  private wholeText(kind: Kind, message: JsonObject, before: ReadonlyMap<string, string>): void {
    const content = contentOf(message)
    if (content === undefined || content === "" || this.streamed.has(kind)) return
    const key = `${kind} ${identifierOf(message.id)}`
    const known = before.get(key) ?? ""
    this.whole.set(key, content)
    const rest = content.startsWith(known) ? content.slice(known.length) : content
    if (rest === "") return
    const { name, type } = kinds[kind]
    const id = this.startText(kind, message.id)
    this.emit({ type: `${type}.delta`, [name]: id, delta: rest })
    this.endText(kind, id)
  }

  private wholeCalls({ toolCalls }: JsonObject): void {
    for (const call of Array.isArray(toolCalls) && !this.streamed.has("call") ? toolCalls : []) {
      if (!isObject(call) || !isObject(call.function) || this.seen.has(`call ${identifierOf(call.id)}`)) continue
      this.startCall({ toolCallId: call.id, toolCallName: call.function.name })
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
    const left = isObject(outcome) ? outcome.pendingToolCallIds : undefined
    for (const id of Array.isArray(left) ? left : []) this.pending.delete(identifierOf(id) ?? "")
    if (this.pending.size === 0) this.end({ type: "turn.completed" })
    else this.current = { is: "calling" }
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
const effects: ReadonlyMap<string, (run: Translation, payload: JsonObject) => unknown> = new Map(
  Object.entries<(run: Translation, payload: JsonObject) => unknown>({
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
    THINKING_TEXT_MESSAGE_START: run => run.startText("thinking", undefined),
    THINKING_TEXT_MESSAGE_CONTENT: (run, { delta }) => run.addText("thinking", undefined, delta),
    THINKING_TEXT_MESSAGE_END: run => run.endText("thinking", undefined),

    TOOL_CALL_START: (run, payload) => run.startStreamedCall(payload),
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
      run.emit({ type: "subagent.started", subagentId: identifierOf(subagentId), agentType, task }),
    SUBAGENT_FINISHED: (run, { result, subagentRunId: subagentId }) =>
      run.emit({ type: "subagent.completed", subagentId: identifierOf(subagentId), result }),
    ACTIVITY_SNAPSHOT: (run, payload) => run.activity(payload),
    CUSTOM: (run, payload) => run.custom(payload)
  })
)
