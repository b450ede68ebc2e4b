/**
 * The events of AG-UI as events of the agent platform. Pure.
 *
 * A turn ends at most once, whatever the agent sends. Its events are not put into order: the mapping of platform events
 * and the fold of a conversation take them in any.
 */
import { Either } from "effect"
import { contentOf, planActivity } from "../../AgUi/Messages.ts"
import type { Message } from "../../AgUi/Protocol.ts"
import { MiB } from "../../base/Bytes.ts"
import { isObject, type JsonObject, parseWellFormed } from "../../base/Json/Parsing.ts"
import type { PlatformEvent } from "../PlatformEvent.ts"
import { identifierOf } from "./Identifier.ts"
import * as Interrupts from "./Interrupts.ts"

/** What a turn has come to. */
export type State =
  | { readonly is: "running" }
  /**
   * The run has ended and calls of the agent's own tools have no result. Some agents end a run with each answer of their
   * model, and continue in the same stream when their tools have run; otherwise the turn ends with the stream.
   */
  | { readonly is: "calling" }
  /** The run has ended, and the turn continues after a person has answered. */
  | { readonly is: "asking"; readonly interrupts: ReadonlyArray<Interrupts.Interrupt>; readonly answers: Answers }
  /** All is answered: the turn continues by a run with the answers. */
  | { readonly is: "resuming"; readonly answers: Answers }
  | { readonly is: "ended" }

type Answers = ReadonlyArray<Interrupts.Resume>

type Payloads = ReadonlyArray<Interrupts.Payload>

type Id = string | undefined

/** Characters of the arguments of a turn's open calls, above which they are only passed as text. */
const longestArguments = MiB

/** The limits of the structure of arguments. */
const shape = { levels: 1000, members: 32_768 }

/** Open calls and messages of a turn, of each. */
const maxKept = 10_000

/** Events after which a run that had ended continues. */
const continuing = /_(?:STARTED|START|CONTENT|ARGS|CHUNK)$/

/** Events between the chunks of a text or a call, which any other event ends. */
const betweenChunks = /_CHUNK$|^(?:RAW|CUSTOM)$/

const text = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined)

/** What an agent writes in pieces, by the start of its events: the member with its id, and the events of the platform. */
const kinds = {
  TEXT_MESSAGE: { id: "messageId", piece: "CONTENT", type: "message", named: "messageId" },
  REASONING_MESSAGE: { id: "messageId", piece: "CONTENT", type: "thinking", named: "thinkingId" },
  TOOL_CALL: { id: "toolCallId", piece: "ARGS", type: "tool.call", named: "callId" }
} as const
type Kind = keyof typeof kinds

/** A message of a snapshot as the events that would have brought it. */
const eventsOf = (message: unknown): Payloads => {
  if (!isObject(message)) return []
  const { id: messageId, role, toolCalls } = message
  const delta = contentOf(message) ?? ""
  if (role === "tool") return [{ ...message, type: "TOOL_CALL_RESULT", content: delta }]
  if (role !== "assistant" && role !== "reasoning") return []
  const type = role === "assistant" ? "TEXT_MESSAGE_CHUNK" : "REASONING_MESSAGE_CHUNK"
  const calls = (Array.isArray(toolCalls) ? toolCalls : []).flatMap((call: unknown) => {
    if (!isObject(call) || !isObject(call.function)) return []
    const { arguments: delta, name: toolCallName } = call.function
    return [{ type: "TOOL_CALL_CHUNK", toolCallId: call.id, toolCallName, delta }]
  })
  return delta === "" ? calls : [{ type, messageId, delta }, ...calls]
}

/** What follows the last message of a user, by kind and id. */
const answerIn = (messages: ReadonlyArray<unknown>): ReadonlyMap<string, Interrupts.Payload> => {
  const last = messages.findLastIndex(message => isObject(message) && message.role === "user")
  const events = messages.slice(last + 1).flatMap(eventsOf)
  return new Map(events.map(event => [`${event.type} ${event.toolCallId ?? event.messageId}`, event]))
}

/** A call whose arguments are being written. */
interface Call {
  readonly name: string
  /** The arguments so far; none if there are too many. */
  written: string | undefined
}

/** The arguments of a call; none if they are too many or no JSON. */
const argumentsIn = (written: string | undefined): object => {
  const args = written === undefined ? Either.left("") : parseWellFormed(written === "" ? "{}" : written, shape)
  return Either.isRight(args) ? { args: args.right } : {}
}

/** An event that clients do not get is counted by its type. */
const dropped = (type: string): Payloads => [{ type: `ag_ui.${type.slice(0, 64)}` }]

const notUnderstood = {
  ...{ type: "turn.failed", code: "agent_malformed", retryable: false },
  message: "The agent has asked a person in a form that is not understood"
}

const usageOf = (usage: unknown): Payloads =>
  (Array.isArray(usage) ? usage.filter(isObject) : []).map(counts => ({ ...counts, type: "usage" }))

/** Translates the runs of one turn. */
export class Translation {
  private current: State = { is: "running" }
  private readonly calls = new Map<Id, Call>()
  /** Characters of arguments that are kept. */
  private kept = 0
  /** Complete calls of the agent's own tools without a result. */
  private readonly pending = new Set<Id>()
  /** Open messages that are not the agent's, such as those of a user. */
  private readonly others = new Set<Id>()
  /** What the last chunk belongs to, which has no event of its own for its end. */
  private chunked: { readonly kind: Kind; readonly id: Id } | undefined
  /** The last snapshot of messages. */
  private messages: ReadonlyArray<unknown> = []
  /** What is not new in the next snapshot. */
  private known: ReadonlySet<string> = new Set()
  /** What the agent has sent as events, and not only as a whole. */
  private streamed = new Set<string>()
  private clientTools: ReadonlySet<unknown> = new Set()

  constructor(private readonly turnId: string) {}

  get state(): State {
    return this.current
  }

  /** Whether more events of the run count. */
  get isOpen(): boolean {
    return this.current.is === "running" || this.current.is === "calling"
  }

  /** Begins a run, for which the agent is sent these messages, and these tools that the client runs. */
  begin(messages: ReadonlyArray<Message>, tools: ReadonlyArray<unknown>): void {
    // A run that continues the turn may get the newest messages only.
    this.known = new Set([...this.known, ...answerIn(messages).keys()])
    this.clientTools = new Set(tools.filter(isObject).map(({ name }) => name))
    this.pending.clear()
    if (this.current.is === "resuming") this.current = { is: "running" }
  }

  /** The events that an event of AG-UI becomes. There are none after the end of the run. */
  add(event: PlatformEvent): ReadonlyArray<PlatformEvent> {
    if (!this.isOpen) return []
    if (this.current.is === "calling" && continuing.test(event.type)) this.current = { is: "running" }
    return this.made(this.apply(event.type, event.payload), event)
  }

  /** Records an answer of a person, unless there is no question that it answers. */
  answer(requestId: string, answer: unknown): ReadonlyArray<PlatformEvent> {
    if (this.current.is !== "asking") return []
    const { interrupts } = this.current
    const interrupt = interrupts.find(({ id }) => id === requestId)
    if (interrupt === undefined || this.current.answers.some(({ interruptId }) => interruptId === requestId)) return []
    const answers = [...this.current.answers, Interrupts.resumeOf(interrupt, answer)]
    this.current = answers.length < interrupts.length ? { ...this.current, answers } : { is: "resuming", answers }
    return this.made([Interrupts.resolvedBy(interrupt, answer)])
  }

  /** Ends the turn, unless it has ended. If its last run has ended and it fails after that, it is complete. */
  finish(end: Interrupts.Payload): ReadonlyArray<PlatformEvent> {
    if (this.current.is === "ended") return []
    const isComplete = this.current.is === "calling" && end.type === "turn.failed"
    return this.made(this.end(isComplete ? { type: "turn.completed" } : end))
  }

  private made(payloads: Payloads, { asSent, size = 0, timestamp }: Partial<PlatformEvent> = {}) {
    return payloads.map((members): PlatformEvent => {
      const payload = { ...members, turnId: this.turnId }
      // Those of a snapshot may be longer than the event that they come with.
      const longest = Math.max(size, text(members.delta)?.length ?? 0, text(members.result)?.length ?? 0)
      // A delta may have the half of a character.
      const sent = asSent && { ...payload, delta: asSent.delta }
      return { id: undefined, type: payload.type, timestamp, payload, size: longest, asSent: sent }
    })
  }

  private apply(given: string, payload: JsonObject): Payloads {
    // The names before version 0.0.45 of the protocol.
    const type = given.startsWith("THINKING_") ? given.replace(/^THINKING_(?:TEXT_)?/, "REASONING_") : given
    const effect = effects.get(type) ?? (() => dropped(type))
    if (this.chunked === undefined || betweenChunks.test(type)) return effect(this, payload)
    return [...this.endChunk(), ...effect(this, payload)]
  }

  private end(payload: Interrupts.Payload): Payloads {
    const whole = this.whole()
    this.current = { is: "ended" }
    return [...whole, payload]
  }

  start(kind: Kind, id: Id, { role, toolCallName }: JsonObject): Payloads {
    const { named, type } = kinds[kind]
    if (typeof role === "string" && role !== "assistant" && role !== "reasoning") {
      if (this.others.size < maxKept) this.others.add(id)
      return []
    }
    if (kind !== "TOOL_CALL") return [{ type: `${type}.start`, [named]: id }]
    this.streamed.add(kind)
    const name = identifierOf(toolCallName) ?? "unknown"
    if (this.calls.size < maxKept && !this.calls.has(id)) this.calls.set(id, { name, written: "" })
    return [{ type: `${type}.start`, [named]: id, name }]
  }

  addPiece(kind: Kind, id: Id, delta: unknown): Payloads {
    if (this.others.has(id)) return []
    const { named, type } = kinds[kind]
    this.streamed.add(kind)
    const call = kind === "TOOL_CALL" ? this.calls.get(id) : undefined
    if (call !== undefined && typeof delta === "string") this.keep(call, delta)
    return [{ type: `${type}.delta`, [named]: id, delta }]
  }

  /** Keeps a piece of arguments, unless there are too many of them. */
  private keep(call: Call, piece: string): void {
    if (call.written === undefined) return
    const fits = this.kept + piece.length <= longestArguments
    this.kept += fits ? piece.length : -call.written.length
    call.written = fits ? call.written + piece : undefined
  }

  endPart(kind: Kind, id: Id): Payloads {
    if (this.others.delete(id)) return []
    const { named, type } = kinds[kind]
    if (kind !== "TOOL_CALL") return [{ type: `${type}.complete`, [named]: id }]
    const call = this.calls.get(id)
    if (call === undefined) return []
    this.calls.delete(id)
    this.kept -= call.written?.length ?? 0
    if (this.pending.size < maxKept && !this.clientTools.has(call.name)) this.pending.add(id)
    return [{ type, [named]: id, name: call.name, ...argumentsIn(call.written) }]
  }

  /** A piece that names what it belongs to only at first. */
  addChunk(kind: Kind, given: Id, payload: JsonObject): Payloads {
    const last = this.chunked?.kind === kind ? this.chunked : undefined
    const id = given ?? last?.id
    const before = last !== undefined && last.id === id ? [] : [...this.endChunk(), ...this.start(kind, id, payload)]
    this.chunked = { kind, id }
    return text(payload.delta) === undefined ? before : [...before, ...this.addPiece(kind, id, payload.delta)]
  }

  private endChunk(): Payloads {
    const { chunked } = this
    this.chunked = undefined
    return chunked === undefined ? [] : this.endPart(chunked.kind, chunked.id)
  }

  result({ content, metadata, toolCallId }: JsonObject): Payloads {
    const callId = identifierOf(toolCallId)
    const call = this.endPart("TOOL_CALL", callId)
    this.streamed.add("TOOL_CALL_RESULT")
    this.pending.delete(callId)
    const error = isObject(metadata) ? metadata["causeway.error"] : undefined
    return isObject(error)
      ? [...call, { type: "tool.error", callId, error }]
      : [...call, { type: "tool.result", callId, result: content ?? null }]
  }

  snapshot({ messages }: JsonObject): Payloads {
    if (Array.isArray(messages)) this.messages = messages
    return []
  }

  /**
   * What is new in the last snapshot, from an agent that sends it only as a whole. Many send it as events and then again,
   * some with other ids. What follows the message of the user is new, as some agents use ids in several turns.
   */
  private whole(): Payloads {
    const { known, messages } = this
    if (messages.length === 0) return []
    const streamed = new Set(this.streamed)
    const answer = answerIn(messages)
    this.messages = []
    this.known = new Set(answer.keys())
    const events = [...answer].flatMap(([key, event]) =>
      known.has(key) || streamed.has(event.type.replace(/_CHUNK$/, "")) ? [] : this.apply(event.type, event)
    )
    const last = this.endChunk()
    this.streamed = streamed
    return [...events, ...last]
  }

  finished({ outcome, usage }: JsonObject): Payloads {
    const before = [...usageOf(usage), ...this.whole()]
    const { pendingToolCallIds: left, type } = isObject(outcome) ? outcome : ({} as JsonObject)
    const interrupts = Interrupts.interruptsOf(outcome)
    if (interrupts.length > 0) {
      this.current = { is: "asking", interrupts, answers: [] }
      return [...before, ...interrupts.map(Interrupts.requestOf)]
    }
    if (type === "interrupt") return [...before, ...this.end(notUnderstood)]
    if (type === "cancelled") return [...before, ...this.end({ type: "turn.cancelled" })]
    for (const id of Array.isArray(left) ? left : []) this.pending.delete(identifierOf(id))
    if (this.pending.size === 0) return [...before, ...this.end({ type: "turn.completed" })]
    this.current = { is: "calling" }
    return before
  }

  failed({ code, message, metadata, usage }: JsonObject): Payloads {
    const retryable = isObject(metadata) && metadata["causeway.retryable"] === true
    const problem = { code: text(code) ?? "agent_error", message: text(message) ?? "The agent reported an error" }
    return [...usageOf(usage), ...this.end({ type: "turn.failed", ...problem, retryable })]
  }
}

/** The names of `CUSTOM` events of another gateway that have an event of the platform, with its type. */
const passed: ReadonlyMap<unknown, string> = new Map([
  ["causeway.tool_progress", "tool.progress"],
  ["causeway.terminal_opened", "terminal.opened"],
  ["causeway.terminal_output", "terminal.output"],
  ["causeway.terminal_exited", "terminal.exited"],
  ["causeway.artifact_created", "artifact.created"],
  ["causeway.checkpoint_created", "checkpoint.created"],
  ["causeway.usage_context", "usage"],
  ["causeway.rate_limited", "rate_limited"],
  ["causeway.error", "error"],
  // With the change.
  ["causeway.file_changed", "file"]
])

const custom: Change = (_, { name, value }) => {
  const type = passed.get(name)
  if (type === undefined || !isObject(value)) return dropped("CUSTOM")
  return [{ ...value, type: type === "file" ? `file.${text(value.change)?.slice(0, 64)}` : type }]
}

const activity: Change = (_, { activityType, content }) =>
  activityType === planActivity && isObject(content)
    ? [{ type: "plan.updated", plan: content.plan }]
    : dropped("ACTIVITY")

type Change = (run: Translation, payload: JsonObject) => Payloads

const nothing: Change = () => []

/** The events of what an agent writes in pieces. Old thoughts have no ids. */
const inPieces = ([kind, { id, piece, type }]: [Kind, (typeof kinds)[Kind]]): ReadonlyArray<[string, Change]> => {
  const idOf = (payload: JsonObject) => identifierOf(payload[id]) ?? (type === "thinking" ? type : undefined)
  return [
    [`${kind}_START`, (run, payload) => run.start(kind, idOf(payload), payload)],
    [`${kind}_${piece}`, (run, payload) => run.addPiece(kind, idOf(payload), payload.delta)],
    [`${kind}_END`, (run, payload) => run.endPart(kind, idOf(payload))],
    [`${kind}_CHUNK`, (run, payload) => run.addChunk(kind, identifierOf(payload[id]), payload)]
  ]
}

/** The agent has no two open steps of one name. */
const step =
  (type: string): Change =>
  (_, { stepName }) => {
    const name = identifierOf(stepName)
    return [{ type, stepId: name, title: name }]
  }

const subagent =
  (type: string): Change =>
  (_, { description, name, result, subagentRunId }) => [
    { type, subagentId: identifierOf(subagentRunId), agentType: name, task: description, result }
  ]

/** What each event of AG-UI does. */
const effects: ReadonlyMap<string, Change> = new Map<string, Change>([
  ...(Object.entries(kinds) as Array<[Kind, (typeof kinds)[Kind]]>).flatMap(inPieces),
  ["REASONING_START", nothing],
  ["REASONING_END", nothing],
  // A turn that has started does not start again.
  ["RUN_STARTED", () => [{ type: "turn.started" }]],
  ["RUN_FINISHED", (run, payload) => run.finished(payload)],
  ["RUN_ERROR", (run, payload) => run.failed(payload)],
  ["TOOL_CALL_RESULT", (run, payload) => run.result(payload)],
  ["MESSAGES_SNAPSHOT", (run, payload) => run.snapshot(payload)],
  ["STATE_SNAPSHOT", (_, { snapshot }) => [{ type: "state.snapshot", state: snapshot }]],
  ["STATE_DELTA", (_, { delta }) => [{ type: "state.delta", patch: delta }]],
  ["STEP_STARTED", step("step.started")],
  ["STEP_FINISHED", step("step.completed")],
  ["SUBAGENT_STARTED", subagent("subagent.started")],
  ["SUBAGENT_FINISHED", subagent("subagent.completed")],
  ["ACTIVITY_SNAPSHOT", activity],
  ["CUSTOM", custom]
])
