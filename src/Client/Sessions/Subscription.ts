/** Subscriptions to the events of sessions, over consecutive connections. */
import type { Conversation } from "../Conversation/Conversation.ts"
import { AnswerLost, RequestRefused, ResponseTooLarge, refused, type SessionsError } from "../Errors.ts"
import type { Position, SessionEvent } from "../SessionModel.ts"
import type { SessionUpdate } from "../SessionUpdate.ts"
import { Backoff, type Clock } from "../Time.ts"
import type { Link } from "./Link.ts"
import type { AnswerOf } from "./Requests.ts"

/** The maximum number of followed sessions of one connection. */
const maxSubscriptions = 128

/** The size of an update without an event, in bytes. */
const smallUpdate = 256

/** One subscriber: its position, and its queue of updates. */
class Reader {
  readonly #queue: Array<{ readonly update: SessionUpdate; readonly bytes: number }> = []
  #bytes = 0
  #failure: { readonly error: unknown } | undefined
  #wake = () => {}
  /**
   * `live`: it receives the events of the current subscription; `trimmed`: it does, and events before the next one may be
   * missing because they are no longer kept; `paused`: events were omitted because the queue is full.
   */
  state: "waiting" | "live" | "trimmed" | "paused" = "waiting"
  isSynced = false

  /** @param position the last event; `start`: none, `reset`: none, because a new history has replaced the old one */
  constructor(
    public position: Position | "start" | "reset",
    /** Whether it gets the conversation in the place of the events before a position. */
    readonly folds: boolean,
    private readonly maxBytes: number
  ) {}

  get wantsConversation(): boolean {
    return this.folds && typeof this.position === "string"
  }

  push(update: SessionUpdate, bytes = smallUpdate): void {
    this.#queue.push({ update, bytes })
    this.#bytes += bytes
    this.#wake()
  }

  /** Whether an event may be queued. An empty queue accepts one of any size. */
  hasRoom(bytes: number): boolean {
    return this.#bytes === 0 || this.#bytes + bytes <= this.maxBytes
  }

  /** Fails after the queued updates are consumed. */
  fail(error: unknown): void {
    this.#failure ??= { error }
    this.#wake()
  }

  /** Fails at once. */
  abort(error: unknown): void {
    this.#queue.length = 0
    this.#bytes = 0
    this.fail(error)
  }

  /** The next update, if one is queued. */
  shift(): SessionUpdate | undefined {
    const next = this.#queue.shift()
    if (next === undefined) return undefined
    this.#bytes -= next.bytes
    return next.update
  }

  /** Waits for the next update. `onWait` is called before. */
  async changed(onWait: () => void): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure.error
    onWait()
    await new Promise<void>(resolve => {
      this.#wake = resolve
    })
  }
}

/** A conversation of its own for each reader, which may change it. */
const parsed = (text: string): Conversation | undefined => {
  try {
    return JSON.parse(text) as Conversation
  } catch {
    return undefined
  }
}

/** The subscription to one session over the current connection, and its readers. */
class Channel {
  readonly readers = new Set<Reader>()
  readonly #backoff: Backoff
  /** The number of the newest `subscribe`. */
  #round = 0
  #isSubscribed = false
  /** The answer to it; absent before the first one. */
  #current: AnswerOf<"subscribed"> | undefined
  /** The parts of the conversation that were received, while it is. */
  #parts: Array<string> | undefined
  #cancelRetry = () => {}

  constructor(
    private readonly sessionId: string,
    private readonly link: Link,
    private readonly clock: Clock
  ) {
    this.#backoff = new Backoff(clock)
  }

  /**
   * Subscribes from the position of the slowest reader; the others skip known events. While a reader wants the
   * conversation, the subscription begins with it, and the readers of events wait for the next one.
   */
  refresh(): void {
    this.#cancelRetry()
    this.#parts = undefined
    if (!this.link.isOpen) return
    const { link, sessionId } = this
    const readers = [...this.readers].filter(({ state }) => state !== "paused")
    if (readers.length === 0) {
      if (this.#isSubscribed) link.ask({ type: "unsubscribe", sessionId }, { onLoss: "drop" }).catch(() => {})
      this.#isSubscribed = false
      this.#round++
      return
    }
    const positions = readers.flatMap(({ position }) => (typeof position === "string" ? [] : position))
    const epoch = positions[0]?.epoch
    const isSame = positions.length === readers.length && positions.every(position => position.epoch === epoch)
    const afterSeq = isSame ? Math.min(...positions.map(({ seq }) => seq)) : 0
    const fold = readers.some(({ wantsConversation }) => wantsConversation)
    const from = fold ? { fold } : isSame && epoch !== undefined && { afterSeq, epoch }
    const round = ++this.#round
    this.#isSubscribed = true
    link
      .ask(
        { type: "subscribe", sessionId, ...from },
        {
          onLoss: "drop",
          onAnswer: answer => {
            if (round !== this.#round || answer.type !== "subscribed") return
            this.#current = answer
            if (fold) this.#awaitConversation(answer)
            else this.#onSubscribed(answer)
          }
        }
      )
      .catch(error => {
        if (round === this.#round) this.#onRefused(error, fold ? 0 : afterSeq)
      })
  }

  /** Passes an event to the readers that have not received it. */
  onEvent(event: SessionEvent, bytes: number): void {
    const { seq } = event
    let isFull = false
    let isLost = false
    for (const reader of this.readers) {
      const { position, state } = reader
      if ((state !== "live" && state !== "trimmed") || typeof position === "string") continue
      if (seq > position.seq + 1 && state !== "trimmed")
        return this.link.abandon(this.sessionId, "Events of a session are missing")
      if (seq > position.seq && !reader.hasRoom(bytes)) {
        reader.state = "paused"
        isFull = true
        continue
      }
      if (seq > position.seq + 1 && reader.folds) {
        reader.position = "start"
        reader.isSynced = false
        isLost = true
        continue
      }
      if (seq > position.seq + 1) {
        reader.push({ type: "trimmed", after: position.seq })
        reader.isSynced = false
      }
      reader.state = "live"
      if (seq <= position.seq) continue
      reader.position = { epoch: position.epoch, seq }
      reader.push({ type: "event", event, position: reader.position }, bytes)
      this.#sync(reader)
    }
    this.#backoff.reset()
    if (isLost || (isFull && [...this.readers].every(({ state }) => state === "paused"))) this.refresh()
  }

  /** Adds a part of the conversation. The last one is passed to the readers that want it. */
  onConversation({ epoch, index, last, seq, text }: AnswerOf<"conversation">): void {
    const parts = this.#parts
    if (parts === undefined) return
    if (index !== parts.length) return this.link.abandon(this.sessionId, "A part of a conversation is missing")
    parts.push(text)
    const size = parts.reduce((sum, part) => sum + part.length, 0)
    if (size > this.link.maxResponseBytes) throw new ResponseTooLarge(this.link.maxResponseBytes)
    if (!last) return
    this.#parts = undefined
    for (const reader of this.readers) {
      if (!reader.wantsConversation || reader.state === "paused") continue
      if (!reader.hasRoom(2 * size)) {
        reader.state = "paused"
        continue
      }
      const conversation = parsed(parts.join(""))
      if (conversation === undefined) return this.link.abandon(this.sessionId, "A conversation is not valid")
      reader.position = { epoch, seq }
      reader.push({ type: "conversation", conversation, position: reader.position }, 2 * size)
      reader.state = "live"
      this.#sync(reader)
    }
    this.#backoff.reset()
    const states = [...this.readers].map(({ state }) => state)
    if (states.includes("waiting") || !states.includes("live")) this.refresh()
  }

  /** Subscribes again later. */
  retry(): void {
    this.onDisconnected()
    this.#cancelRetry = this.clock.after(this.#backoff.next(), () => this.refresh())
  }

  onDisconnected(): void {
    this.#cancelRetry()
    this.#isSubscribed = false
    this.#round++
    for (const reader of this.readers) if (reader.state !== "paused") reader.state = "waiting"
  }

  fail(error: unknown): void {
    this.#cancelRetry()
    for (const reader of this.readers) reader.fail(error)
  }

  #awaitConversation({ epoch }: AnswerOf<"subscribed">): void {
    this.#parts = []
    for (const reader of this.readers) {
      if (reader.state === "paused") continue
      reader.state = "waiting"
      if (!reader.wantsConversation || reader.position !== "reset") continue
      reader.push({ type: "reset", epoch })
      reader.isSynced = false
      reader.position = "start"
    }
  }

  #onSubscribed(answer: AnswerOf<"subscribed">): void {
    const { epoch, headSeq, recovered } = answer
    let isLost = false
    for (const reader of this.readers) {
      if (reader.state === "paused") continue
      const { position } = reader
      const isKnown = typeof position !== "string" && position.epoch === epoch
      if (isKnown ? position.seq > headSeq : reader.folds) {
        reader.position = "reset"
        isLost = true
        continue
      }
      if (!isKnown) {
        if (position !== "start") {
          reader.push({ type: "reset", epoch })
          reader.isSynced = false
        }
        reader.position = { epoch, seq: 0 }
      }
      reader.state = recovered ? "live" : "trimmed"
      this.#sync(reader)
    }
    if (isLost) this.refresh()
  }

  /** Notifies a reader once that it has received all earlier events. */
  #sync(reader: Reader): void {
    const { position } = reader
    if (reader.isSynced || typeof position === "string") return
    const { headSeq, session } = this.#current!
    if (position.seq < headSeq) return
    reader.isSynced = true
    reader.push({ type: "synced", session, position })
  }

  #onRefused(error: unknown, afterSeq: number): void {
    // The next connection subscribes again.
    if (error instanceof AnswerLost) return
    this.#isSubscribed = false
    if (error instanceof RequestRefused && error.code === "bad_request" && afterSeq > 0) {
      // The position is after the end of the history: it was restored from a backup.
      for (const reader of this.readers) reader.position = "reset"
      return this.refresh()
    }
    const isFinal = error instanceof RequestRefused ? !error.retryable : !this.link.isOpen
    if (isFinal) this.fail(error)
    else this.retry()
  }
}

/** The subscriptions of a client: one for each session, with any number of readers. */
export class Subscriptions {
  readonly #channels = new Map<string, Channel>()

  constructor(
    private readonly link: () => Link,
    private readonly clock: Clock,
    private readonly maxBytes: number
  ) {}

  /** The updates of a session after a position, or from its first event or its conversation on. */
  async *read(
    sessionId: string,
    after: Position | undefined,
    fold: boolean,
    signal: AbortSignal
  ): AsyncGenerator<SessionUpdate, void> {
    const release = this.link().hold()
    const reader = new Reader(after ?? "start", fold, this.maxBytes)
    let channel: Channel
    try {
      channel = this.#channel(sessionId)
    } catch (error) {
      release()
      throw error
    }
    channel.readers.add(reader)
    channel.refresh()
    const resume = () => {
      if (reader.state !== "paused") return
      reader.state = "waiting"
      channel.refresh()
    }
    // One listener for all waits: a listener for each event would cost more than the event.
    const abort = () => reader.abort(signal.reason)
    signal.addEventListener("abort", abort)
    try {
      for (;;) {
        signal.throwIfAborted()
        const update = reader.shift()
        if (update === undefined) await reader.changed(resume)
        else yield update
      }
    } finally {
      signal.removeEventListener("abort", abort)
      channel.readers.delete(reader)
      release()
      if (channel.readers.size === 0 && this.#channels.get(sessionId) === channel) {
        this.#channels.delete(sessionId)
        channel.refresh()
      }
    }
  }

  onConnected(): void {
    for (const channel of this.#channels.values()) channel.refresh()
  }

  onDisconnected(): void {
    for (const channel of this.#channels.values()) channel.onDisconnected()
  }

  onEvent(event: SessionEvent, bytes: number): void {
    this.#channels.get(event.sessionId)?.onEvent(event, bytes)
  }

  onConversation(part: AnswerOf<"conversation">): void {
    this.#channels.get(part.sessionId)?.onConversation(part)
  }

  onSubscriptionEnded(sessionId: string, error: SessionsError): void {
    if (error instanceof RequestRefused && error.retryable) this.#channels.get(sessionId)?.retry()
    else this.#end(sessionId, error)
  }

  onEnded(error: unknown): void {
    for (const sessionId of [...this.#channels.keys()]) this.#end(sessionId, error)
  }

  #end(sessionId: string, error: unknown): void {
    const channel = this.#channels.get(sessionId)
    this.#channels.delete(sessionId)
    channel?.fail(error)
  }

  #channel(sessionId: string): Channel {
    const known = this.#channels.get(sessionId)
    if (known !== undefined) return known
    if (this.#channels.size >= maxSubscriptions) {
      throw refused(`${maxSubscriptions} sessions are followed already, which is the limit`)
    }
    const channel = new Channel(sessionId, this.link(), this.clock)
    this.#channels.set(sessionId, channel)
    return channel
  }
}
