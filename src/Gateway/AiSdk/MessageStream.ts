/**
 * The message of a turn as a stream for one client: each time, the chunks by which what the client has becomes what the
 * conversation has. Live events, a replay from the start and a continuation are the same. Pure.
 */
import type { AgentMessage, Part, RequestPart } from "../../Client/Conversation/Conversation.ts"
import * as Fold from "../../Client/Conversation/Fold.ts"
import type { SessionEvent } from "../../Client/SessionModel.ts"
import { isPending } from "../Streams/Inquiries.ts"
import { type Chunk, chunksOf } from "./Chunks.ts"
import { endOf, Parts, type Segment, type Shown, segmentsOf, startOf, type UiPart, uiOf } from "./UiMessage.ts"

/** What a person has decided on a request for approval. */
export type Decision = Required<Pick<RequestPart, "approved">> & Pick<RequestPart, "reason">

const isDelta = (event: SessionEvent): event is SessionEvent & { readonly text: string } =>
  event.type === "text_delta" || event.type === "thinking_delta" || event.type === "tool_call_delta"

/** The stream of one message. */
export class MessageStream {
  private readonly message: AgentMessage
  private parts = new Parts()
  /** What the client has. */
  private readonly sent = new Map<Shown, UiPart>()
  /** By the part of the conversation: a call also by the request for its approval. */
  private readonly shown = new Map<Part, Shown>()
  /** The parts that may change without an event that names them, by the next part or the end of the turn. */
  private readonly open = new Set<Shown>()
  /** The parts that have changed since the last chunks, with what was added to a text if nothing else has changed. */
  private readonly touched = new Map<Part, string | undefined>()
  private segment: Segment
  /** The number of the conversation's parts that the client has, and the first of them. */
  private handled: number
  private first: Part | undefined
  private isOver = false

  /**
   * Begins with a message of a turn that is in the conversation: the last one.
   *
   * @param decisions what persons have decided, by the `seq` of the request, which the agent may not have confirmed;
   *   undefined if it is not known what
   */
  constructor(
    private readonly fold: Fold.Fold,
    turnId: string,
    private readonly decisions: ReadonlyMap<number, Decision | undefined> = new Map(),
    segment?: Segment
  ) {
    this.message = fold.turns.get(turnId)!
    this.segment = segment ?? segmentsOf(this.message).at(-1)!
    this.handled = this.segment.from
    this.first = this.message.parts[0]
  }

  /** Whether the last chunks end the stream: the turn has ended, or a person is asked. */
  get isEnded(): boolean {
    return this.isOver
  }

  /** Adds an event of the session. */
  add(event: SessionEvent): void {
    const { fold, touched } = this
    fold.touched = undefined
    Fold.add(fold, event)
    const part = fold.touched as Part | undefined
    if (part === undefined) return
    const earlier = touched.has(part) ? touched.get(part) : ""
    touched.set(part, isDelta(event) && earlier !== undefined ? earlier + event.text : undefined)
  }

  /** The first chunks: the start, and what a client lacks that has these parts of the message. */
  *begin(client: ReadonlyArray<UiPart> = []): Generator<Chunk> {
    const { message, segment } = this
    yield { type: "start", messageId: segment.id, messageMetadata: startOf(message, segment) }
    const ours = [...this.take()]
    for (const [index, shown] of ours.entries()) if (index < client.length) this.sent.set(shown, client[index]!)
    yield* (client.length > ours.length ? undefined : this.updates(ours, false)) ?? this.again()
    yield* this.end()
  }

  /** The chunks of the events that were added since the last ones. */
  *next(): Generator<Chunk> {
    yield* this.changes() ?? this.again()
    yield* this.end()
  }

  /** The chunks of all changes; undefined if there are none that the client could follow. */
  private changes(): ReadonlyArray<Chunk> | undefined {
    const { message, open, shown, touched } = this
    // A conversation that has become too long loses its oldest parts.
    if (this.handled > 0 && message.parts[0] !== this.first) return undefined
    const changed = new Set<Shown>()
    // A part that begins, also in the message of another turn, completes an open one with the same id.
    let mayComplete = message.status !== "running"
    for (const part of touched.keys()) {
      const known = shown.get(part)
      if (known === undefined) mayComplete = true
      else changed.add(known)
    }
    if (mayComplete) for (const each of open) changed.add(each)
    for (const each of this.take()) changed.add(each)
    return this.updates(changed)
  }

  /** The chunks of parts that may have changed; undefined if there are none that the client could follow. */
  private updates(changed: Iterable<Shown>, isOpen = true): ReadonlyArray<Chunk> | undefined {
    const chunks = Array.from(changed, each => this.update(each, isOpen))
    this.touched.clear()
    return chunks.includes(undefined) ? undefined : chunks.flatMap(made => made!)
  }

  /** Sends the whole message again. The client drops its parts. */
  private *again(): Generator<Chunk> {
    const { id } = this.segment
    const from = segmentsOf(this.message).find(segment => segment.id === id)?.from ?? 0
    this.segment = { ...this.segment, from }
    this.handled = from
    this.parts = new Parts()
    for (const known of [this.sent, this.shown, this.open, this.touched]) known.clear()
    this.first = undefined
    yield { type: "reset-step" }
    yield* this.updates(this.take())!
  }

  /** Takes the parts that have started. */
  private take(): ReadonlySet<Shown> {
    const { parts } = this.message
    const begun = new Set<Shown>()
    for (const part of parts.slice(this.handled)) {
      const shown = this.parts.add(part)
      this.shown.set(part, shown)
      begun.add(shown)
    }
    this.first ??= parts[0]
    this.handled = parts.length
    return begun
  }

  private uiOf(shown: Shown): UiPart {
    const { decisions, message } = this
    const decision = shown.request && decisions.get(shown.request.seq)
    const decided =
      decision === undefined
        ? shown
        : { ...shown, request: { ...shown.request!, ...decision, status: "answered" as const } }
    return uiOf(decided, message.status, shown.part === message.parts.at(-1))
  }

  private update(shown: Shown, isOpen: boolean): ReadonlyArray<Chunk> | undefined {
    const { part } = shown
    const { sent, touched } = this
    const after = this.uiOf(shown)
    const added = touched.get(part)
    const chunks = chunksOf({ key: shown.key, before: sent.get(shown), after, added, isOpen })
    this.keep(shown, after)
    return chunks !== undefined && part.type === "tool" && part.inProgress && part.progress && touched.has(part)
      ? [...chunks, progressOf(shown, part.progress)]
      : chunks
  }

  private keep(shown: Shown, ui: UiPart): void {
    const { part, request } = shown
    this.sent.set(shown, ui)
    const mayChange =
      "inProgress" in part || isPending(part) || isPending(request) || ("state" in ui && ui.state === "streaming")
    if (mayChange) this.open.add(shown)
    else this.open.delete(shown)
  }

  private *end(): Generator<Chunk> {
    const { message } = this
    const { error, reason, status } = message
    this.isOver = status !== "running" || this.isAsked
    if (!this.isOver) return
    if (status === "running") return yield { type: "finish", finishReason: "tool-calls" }
    yield { type: "message-metadata", messageMetadata: endOf(message) }
    if (status === "failed") yield { type: "error", errorText: error?.message ?? "The turn failed" }
    else if (status === "interrupted") yield { type: "abort", ...(reason !== undefined && { reason }) }
    else yield { type: "finish", finishReason: "stop" }
  }

  /** Whether a person is asked and has not decided. */
  private get isAsked(): boolean {
    for (const { part, request } of this.open) {
      const asked = request ?? part
      if (isPending(asked) && !this.decisions.has(asked.seq)) return true
    }
    return false
  }
}

/** The progress of a tool, which is no part of the message. */
const progressOf = ({ toolCallId }: Shown, progress: object): Chunk => ({
  type: "data-progress",
  id: toolCallId,
  data: { toolCallId, ...progress },
  transient: true
})
