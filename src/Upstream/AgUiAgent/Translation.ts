/**
 * The events of AG-UI as events of the agent platform. Pure.
 *
 * It is lenient: text comes even if its message has no start, and unknown events are counted as dropped. A turn starts once
 * and ends at most once, whatever the agent sends.
 */
import { Either } from "effect"
import { contentOf, planActivity } from "../../AgUi/Messages.ts"
import type { Message } from "../../AgUi/Protocol.ts"
import { MiB } from "../../base/Bytes.ts"
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

/** A text, a call or a result in a snapshot of messages. */
interface WholePart {
  readonly kind: Kind | "result"
  readonly id: unknown
  readonly content: string
  /** The members of the event that begins it. */
  readonly message: JsonObject
}

const known = ({ content, id, kind }: WholePart) => [keyOf(kind, id), content] as const

const partsOf = (message: unknown): ReadonlyArray<WholePart> => {
  if (!isObject(message)) return []
  const { id, role, toolCallId, toolCalls } = message
  const content = contentOf(message) ?? ""
  if (role === "tool") return [{ kind: "result", id: toolCallId, content, message }]
  if (role !== "assistant" && role !== "reasoning") return []
  const kind = role === "assistant" ? "message" : "thinking"
  const calls = Array.isArray(toolCalls) && role === "assistant" ? toolCalls : []
  return [
    ...(content === "" ? [] : [{ kind, id, content, message } as const]),
    ...calls.flatMap((call): ReadonlyArray<WholePart> => {
      if (!isObject(call) || !isObject(call.function)) return []
      const { arguments: written, name } = call.function
      return [{ kind: "call", id: call.id, content: text(written) ?? "", message: { toolCallName: name } }]
    })
  ]
}

/** Characters of arguments, of a call and of all open ones of a turn, above which they are only passed as text. */
const longestArguments = { call: MiB, turn: 4 * MiB }

/** The limits of the structure of arguments. */
const shape = { levels: 1000, members: 32_768 }

/** Open messages, calls and steps of a turn, of each; further ones are dropped. */
const maxKept = 10_000

/** Events after which a run that had ended continues. */
const continuing = /_(?:STARTED|START|CONTENT|ARGS|CHUNK)$/

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

/** What an agent writes in pieces, with the events of the platform and the name of their ids. */
const kinds = {
  message: { named: "messageId", type: "message" },
  thinking: { named: "thinkingId", type: "thinking" },
  call: { named: "callId", type: "tool.call" }
} as const
type Kind = keyof typeof kinds

/** A text or a call that has started. */
interface Open {
  readonly kind: Kind
  readonly id: string
  /** Of the tool that is called. */
  readonly name: string
  /** The arguments of a call so far; none if they are too long. */
  text: string | undefined
  /** Whether it is not the agent's, such as a message of a user. */
  readonly isLeftOut: boolean
}

const keyOf = (kind: Kind | "result", id: unknown): string => `${kind} ${identifierOf(id)}`

/** The arguments of a call; none if they are no JSON. */
const argumentsIn = (written: string): object =>
  Either.match(parseWellFormed(written === "" ? "{}" : written, shape), {
    onLeft: () => ({}),
    onRight: args => ({ args })
  })

/** Translates the runs of one turn. */
export class Translation {
  private current: State = { is: "running" }
  private isStarted = false
  /** By kind and id. */
  private readonly open = new Map<string, Open>()
  /** Characters of arguments that are kept. */
  private kept = 0
  /** Complete calls of the agent's own tools without a result. */
  private readonly pending = new Set<string>()
  /** The names of open steps by their ids, the oldest first. */
  private readonly steps = new Map<string, string>()
  private count = 0
  /** What the last chunk belongs to, which has no event of its own for its end. */
  private chunked: Pick<Open, "id" | "kind"> | undefined
  /** What the agent has sent as events, and not only as a whole. */
  private streamed = new Set<Kind | "result">()
  /** What the last snapshot had, by kind and id. */
  private whole: ReadonlyMap<string, string> = new Map()
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
    if (this.current.is !== "ended") this.end(payload)
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
    this.chunked = undefined
    for (const { id, kind } of this.open.values()) this.endPart(kind, id)
  }

  // Texts and calls

  /** One that is open; without an id the newest. */
  private find(kind: Kind, id: unknown): Open | undefined {
    return identifierOf(id) === undefined
      ? [...this.open.values()].findLast(open => open.kind === kind)
      : this.open.get(keyOf(kind, id))
  }

  /** Begins a text or a call, unless it is open. */
  startPart(kind: Kind, given: unknown, { role, toolCallName }: JsonObject = {}): Open {
    const id = identifierOf(given) ?? `${kind}-${++this.count}`
    const { named, type } = kinds[kind]
    const known = this.open.get(keyOf(kind, id))
    if (known !== undefined) return known
    if (kind === "call") this.streamed.add(kind)
    const isOther = typeof role === "string" && role !== "assistant" && role !== "reasoning"
    const isLeftOut = isOther || this.open.size >= maxKept
    const name = identifierOf(toolCallName) ?? "unknown"
    const open: Open = { kind, id, name, text: "", isLeftOut }
    if (this.open.size < maxKept) this.open.set(keyOf(kind, id), open)
    if (!isLeftOut) this.emit({ type: `${type}.start`, [named]: id, ...(kind === "call" ? { name } : {}) })
    return open
  }

  /** Adds a piece. Text without a start begins by it. */
  addPiece(kind: Kind, given: unknown, delta: unknown): void {
    if (typeof delta !== "string") return this.drop("DELTA")
    const { named, type } = kinds[kind]
    const open = this.find(kind, given) ?? this.startPart(kind, given)
    if (open.isLeftOut) return
    this.streamed.add(kind)
    if (kind === "call") this.keep(open, delta)
    const payload = { type: `${type}.delta`, [named]: open.id, delta }
    // It may have the halves of characters.
    const sent = this.input?.asSent?.delta
    this.emit(payload, typeof sent === "string" ? { ...payload, delta: sent } : undefined)
  }

  /** Keeps a piece of arguments, unless there are too many of them. */
  private keep(open: Open, piece: string): void {
    if (open.text === undefined) return
    const { length } = piece
    const fits = open.text.length + length <= longestArguments.call && this.kept + length <= longestArguments.turn
    this.kept += fits ? length : -open.text.length
    open.text = fits ? open.text + piece : undefined
  }

  endPart(kind: Kind, given: unknown): void {
    const open = this.find(kind, given)
    if (open === undefined) return
    const { id, isLeftOut, name, text: written } = open
    this.open.delete(keyOf(kind, id))
    this.kept -= written?.length ?? 0
    if (isLeftOut) return
    const { named, type } = kinds[kind]
    if (kind !== "call") return this.emit({ type: `${type}.complete`, [named]: id })
    if (this.pending.size < maxKept && !this.clientTools.has(name)) this.pending.add(id)
    this.emit({ type, [named]: id, name, ...(written === undefined ? {} : argumentsIn(written)) })
  }

  /** A piece that names what it belongs to only at first. */
  addChunk(kind: Kind, given: unknown, payload: JsonObject): void {
    const named = identifierOf(given) ?? (this.chunked?.kind === kind ? this.chunked.id : undefined)
    if (named === undefined || this.chunked?.kind !== kind || this.chunked.id !== named) this.endChunk()
    const { id } = this.startPart(kind, named, payload)
    this.chunked = { kind, id }
    if (text(payload.delta) !== undefined) this.addPiece(kind, id, payload.delta)
  }

  private endChunk(): void {
    const { chunked } = this
    this.chunked = undefined
    if (chunked !== undefined) this.endPart(chunked.kind, chunked.id)
  }

  result({ content, metadata, toolCallId }: JsonObject): void {
    const callId = identifierOf(toolCallId)
    if (callId === undefined) return this.drop("TOOL_CALL_RESULT")
    this.streamed.add("result")
    this.endPart("call", callId)
    this.pending.delete(callId)
    const error = isObject(metadata) ? metadata["causeway.error"] : undefined
    this.emit(
      isObject(error) ? { type: "tool.error", callId, error } : { type: "tool.result", callId, result: content ?? null }
    )
  }

  // Steps

  startStep(stepName: unknown): void {
    const name = identifierOf(stepName)
    if (name === undefined || this.steps.size >= maxKept) return
    const id = `step-${++this.count}`
    this.steps.set(id, name)
    this.emit({ type: "step.started", stepId: id, title: name })
  }

  endStep(stepName: unknown): void {
    const title = identifierOf(stepName)
    const [stepId] = [...this.steps].findLast(([, name]) => name === title) ?? []
    if (stepId !== undefined && this.steps.delete(stepId)) this.emit({ type: "step.completed", stepId, title })
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
    const before = new Map([...(last < 0 ? this.history.flatMap(partsOf) : []).map(known), ...this.whole])
    const parts = messages.slice(last + 1).flatMap(partsOf)
    this.whole = new Map(parts.map(known))
    const streamed = new Set(this.streamed)
    for (const part of parts) if (!streamed.has(part.kind)) this.addWhole(part, before.get(known(part)[0]))
    this.streamed = streamed
  }

  /** A part of a snapshot, or what it has more than in the snapshot before. */
  private addWhole({ content, id, kind, message }: WholePart, before: string | undefined): void {
    if (content === before) return
    if (kind === "result") return this.result(message)
    const isMore = kind !== "call" && before !== undefined && content.startsWith(before)
    const started = this.startPart(kind, id, message)
    if (content !== "") this.addPiece(kind, started.id, isMore ? content.slice(before.length) : content)
    this.endPart(kind, started.id)
  }

  // Others

  activity({ activityType, content }: JsonObject): void {
    if (activityType === planActivity && isObject(content)) this.emit({ type: "plan.updated", plan: content.plan })
    else this.drop("ACTIVITY")
  }

  /** The events that another gateway passes on unchanged. */
  custom({ name, value }: JsonObject): void {
    if (typeof name !== "string" || !isObject(value)) return this.drop("CUSTOM")
    const { change, path: to, previousPath: from } = value
    const type = passed.get(name === fileChanged ? `${name} ${change}` : name)
    if (type === undefined) this.drop("CUSTOM")
    else this.emit({ ...value, ...(type === "file.renamed" ? { from, to } : {}), type })
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
    const { pendingToolCallIds: left, type } = isObject(outcome) ? outcome : ({} as JsonObject)
    if (type === "interrupt") {
      const message = "The agent has asked a person in a form that is not understood"
      return this.end({ type: "turn.failed", code: "agent_malformed", message, retryable: false })
    }
    if (type === "cancelled") return this.end({ type: "turn.cancelled" })
    this.closeAll()
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

const fileChanged = "causeway.file_changed"

/** The names of `CUSTOM` events, for files with the change, that have an event of the platform, with its type. */
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
    error: "error",
    "file_changed created": "file.created",
    "file_changed modified": "file.modified",
    "file_changed deleted": "file.deleted",
    "file_changed renamed": "file.renamed"
  }).map(([name, type]) => [`causeway.${name}`, type])
)

const nothing = () => {}

type Change = (run: Translation, payload: JsonObject) => unknown

/** The events of what an agent writes in pieces; `id` is the member that has its id. */
const inPieces = (prefix: string, kind: Kind, id: string, piece = "CONTENT"): Readonly<Record<string, Change>> => ({
  [`${prefix}_START`]: (run, payload) => run.startPart(kind, payload[id], payload),
  [`${prefix}_${piece}`]: (run, payload) => run.addPiece(kind, payload[id], payload.delta),
  [`${prefix}_END`]: (run, payload) => run.endPart(kind, payload[id]),
  [`${prefix}_CHUNK`]: (run, payload) => run.addChunk(kind, payload[id], payload)
})

/** What each event of AG-UI does. */
const effects: ReadonlyMap<string, Change> = new Map(
  Object.entries<Change>({
    RUN_STARTED: nothing,
    RUN_FINISHED: (run, payload) => run.finished(payload),
    RUN_ERROR: (run, payload) => run.failed(payload),

    ...inPieces("TEXT_MESSAGE", "message", "messageId"),
    REASONING_START: nothing,
    REASONING_END: nothing,
    ...inPieces("REASONING_MESSAGE", "thinking", "messageId"),
    // The names before version 0.0.45 of the protocol, without ids.
    THINKING_START: nothing,
    THINKING_END: nothing,
    ...inPieces("THINKING_TEXT_MESSAGE", "thinking", "messageId"),
    ...inPieces("TOOL_CALL", "call", "toolCallId", "ARGS"),
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
