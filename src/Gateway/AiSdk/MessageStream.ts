/**
 * The message of a turn as a stream for one client: each time, the chunks by which what the client has becomes what the
 * conversation has. Live events, a replay from the start and a continuation are the same. Pure.
 */
import type { AgentMessage, Part, RequestPart } from "../../Client/Conversation/Conversation.ts"
import * as Fold from "../../Client/Conversation/Fold.ts"
import type { SessionEvent } from "../../Client/SessionModel.ts"
import { isPending } from "../Streams/Inquiries.ts"
import { type Chunk, chunksOf } from "./Chunks.ts"
import { endOf, Parts, type Segment, type Shown, segmentAfter, startOf, type UiPart, uiOf } from "./UiMessage.ts"

/** What a person has decided on a request for approval. */
export type Decision = Required<Pick<RequestPart, "approved">> & Pick<RequestPart, "reason">

const isDelta = (event: SessionEvent): event is SessionEvent & { readonly text: string } =>
  event.type === "text_delta" || event.type === "thinking_delta" || event.type === "tool_call_delta"

/** Whether a part may change without an event that names it: by the next part, or by the end of the turn. */
const mayChange = ({ part, request }: Shown, { state }: UiPart): boolean =>
  "inProgress" in part || isPending(request ?? part) || state === "streaming"

/** The stream of one message. */
export class MessageStream {
  private readonly message: AgentMessage
  private parts = new Parts()
  /** What the client has. */
  private readonly sent = new Map<Shown, UiPart>()
  /** Those that {@link mayChange}. */
  private readonly open = new Set<Shown>()
  /** The parts that have changed since the last chunks, with what was added to a text if nothing else has changed. */
  private readonly changed = new Map<Shown, string | undefined>()
  /** Whether a part has started since then, also in the message of another turn. It completes an open one with its id. */
  private hasStarted = false
  private readonly segment: Segment
  /** The number of the conversation's parts that the client has, and the first of them. */
  private handled: number
  private first: Part | undefined
  /** Whether the last chunks end the stream: the turn has ended, or a person is asked. */
  isEnded = false

  /**
   * Begins with a message of a turn that is in the conversation: the last one, or that after a question with a `seq`.
   *
   * @param decisions what persons have decided, by the `seq` of the request, which the agent may not have confirmed;
   *   undefined if it is not known what
   */
  constructor(
    private readonly fold: Fold.Fold,
    turnId: string,
    private readonly decisions: ReadonlyMap<number, Decision | undefined> = new Map(),
    after?: number
  ) {
    this.message = fold.turns.get(turnId)!
    this.segment = segmentAfter(this.message, after)
    this.handled = this.segment.from
  }

  /** Adds an event of the session. */
  add(event: SessionEvent): void {
    const { changed, fold } = this
    fold.touched = undefined
    Fold.add(fold, event)
    const part = fold.touched as Part | undefined
    if (part === undefined) return
    const shown = this.parts.of(part)
    this.hasStarted ||= shown === undefined
    if (shown === undefined) return
    const earlier = changed.has(shown) ? changed.get(shown) : ""
    changed.set(shown, isDelta(event) && earlier !== undefined ? earlier + event.text : undefined)
  }

  /** The first chunks: the start, and what a client lacks that has these parts of the message. */
  *begin(client: ReadonlyArray<UiPart> = []): Generator<Chunk> {
    const { changed, message, segment } = this
    yield { type: "start", messageId: segment.id, messageMetadata: startOf(message, segment) }
    this.take()
    const isLonger = client.length > changed.size
    for (const [index, shown] of [...changed.keys()].entries()) {
      if (index < client.length) this.sent.set(shown, client[index]!)
    }
    yield* (isLonger ? undefined : this.updates(false)) ?? this.again()
    yield* this.end()
  }

  /** The chunks of the events that were added since the last ones. */
  *next(): Generator<Chunk> {
    yield* this.changes() ?? this.again()
    yield* this.end()
  }

  /** The chunks of all changes; undefined if there are none that the client could follow. */
  private changes(): ReadonlyArray<Chunk> | undefined {
    const { changed, message } = this
    // A conversation that has become too long loses its oldest parts.
    if (this.handled > 0 && message.parts[0] !== this.first) return undefined
    if (this.hasStarted || message.status !== "running") {
      for (const shown of this.open) if (!changed.has(shown)) changed.set(shown, undefined)
    }
    this.take()
    return this.updates(true)
  }

  /** The chunks of what has changed; undefined if there are none that the client could follow. */
  private updates(isOpen: boolean): ReadonlyArray<Chunk> | undefined {
    const chunks = Array.from(this.changed, ([shown, added]) => this.update(shown, added, isOpen))
    this.changed.clear()
    this.hasStarted = false
    return chunks.includes(undefined) ? undefined : chunks.flatMap(made => made!)
  }

  /** Sends the whole message again. The client drops its parts. */
  private *again(): Generator<Chunk> {
    // From the first part on if there is no question before it, or if that is dropped too.
    this.handled = this.message.parts.findIndex(({ seq }) => seq === this.segment.after) + 1
    this.parts = new Parts()
    for (const known of [this.sent, this.open, this.changed]) known.clear()
    yield { type: "reset-step" }
    this.take()
    yield* this.updates(true)!
  }

  /** Takes the parts that have started. */
  private take(): void {
    const { parts } = this.message
    for (const part of parts.slice(this.handled)) this.changed.set(this.parts.add(part), undefined)
    this.first = parts[0]
    this.handled = parts.length
  }

  private uiOf(shown: Shown): UiPart {
    const { decisions, message } = this
    const { request } = shown
    const decision = request && decisions.get(request.seq)
    const decided: Shown =
      decision === undefined ? shown : { ...shown, request: { ...request!, ...decision, status: "answered" } }
    return uiOf(decided, message)
  }

  private update(shown: Shown, added: string | undefined, isOpen: boolean): ReadonlyArray<Chunk> | undefined {
    const { key, part, toolCallId } = shown
    const after = this.uiOf(shown)
    const chunks = chunksOf({ key, before: this.sent.get(shown), after, added, isOpen })
    this.sent.set(shown, after)
    if (mayChange(shown, after)) this.open.add(shown)
    else this.open.delete(shown)
    if (part.type !== "tool" || !part.inProgress || part.progress === shown.progress) return chunks
    shown.progress = part.progress
    // No message keeps it.
    const data = { toolCallId, ...part.progress }
    return chunks && [...chunks, { type: "data-progress", id: toolCallId, data, transient: true }]
  }

  private *end(): Generator<Chunk> {
    const { message } = this
    const { error, reason, status } = message
    this.isEnded = status !== "running" || this.isAsked
    if (!this.isEnded) return
    if (status === "running") return yield { type: "finish", finishReason: "tool-calls" }
    yield { type: "message-metadata", messageMetadata: endOf(message) }
    if (status === "failed") yield { type: "error", errorText: error?.message ?? "The turn failed" }
    else if (status === "interrupted") yield { type: "abort", ...(reason !== undefined && { reason }) }
    else yield { type: "finish", finishReason: "stop" }
  }

  /** Whether a person is asked and has not decided. */
  private get isAsked(): boolean {
    return [...this.open].some(({ part, request = part }) => isPending(request) && !this.decisions.has(request.seq))
  }
}
