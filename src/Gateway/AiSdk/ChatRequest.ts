/** A request on the WebSocket of chats: the message of a turn as numbered chunks, what there is of it and what is new. */
import { Deferred, FiberId } from "effect"
import type { SessionEvent } from "../../Client/SessionModel.ts"
import type { ApiError } from "../../Http/ApiError.ts"
import { type Connection, textFrames } from "../../Http/WebSocket.ts"
import { Feed, type FeedOwner, type Outbox } from "../Clients/Feed.ts"
import type { ClientsShape } from "../Clients.ts"
import * as GatewayMetrics from "../GatewayMetrics.ts"
import type { Frame, Subscription } from "../Sessions.ts"
import type { Begun } from "../Streams/Histories.ts"
import type * as Chats from "./Chats.ts"
import type { Chunk } from "./Chunks.ts"

/** Characters of chunks above which a write ends. */
const writeCharacters = 64 * 1024

const busy = "Other clients need the memory: resume the chat"

/** A frame that is no chunk. */
interface AnswerFrame {
  readonly type: "start" | "end" | "no-active" | "error"
  readonly requestId: string
  readonly errorText?: string | undefined
}

export const sendFrame = (connection: Connection, { tags }: Pick<ClientsShape, "tags">, frame: AnswerFrame): void => {
  GatewayMetrics.sent.increment(`chat_${frame.type}`, tags)
  connection.send(JSON.stringify(frame))
}

/** One request of a connection. */
export class ChatRequest implements Outbox, FeedOwner {
  readonly feed: Feed
  /** The turn that it follows. */
  readonly turn = Deferred.unsafeMake<string, ApiError>(FiberId.none)
  private sequence = 0
  private beginning: Begun<Chats.Beginning> | undefined
  /** What has to be sent before events are read. */
  private chunks: Iterator<Chunk> | undefined
  private waiting: (() => void) | undefined
  private isOver = false

  constructor(
    readonly id: string,
    readonly chatId: string,
    private readonly tenant: string,
    private readonly clients: ClientsShape,
    private readonly connection: Connection,
    private readonly onEnd: (request: ChatRequest) => void
  ) {
    this.feed = new Feed(this, this, clients.debug)
  }

  get hasEnded(): boolean {
    return this.isOver
  }

  get hasRoom(): boolean {
    return !this.isOver && this.chunks === undefined && this.connection.hasRoom
  }

  /** Begins to send the message. */
  begin(subscription: Subscription, beginning: Begun<Chats.Beginning>): void {
    if (this.isOver) return
    const { after, client, kept, stream } = beginning
    GatewayMetrics.streams.increment("ai_sdk_websocket", this.clients.tags)
    kept.offer(() => this.fail(busy))
    this.beginning = beginning
    this.chunks = stream.begin(client)
    this.pump()
    if (!this.isOver) this.feed.begin(subscription, { after, maySkip: false })
  }

  sendEvents(frames: ReadonlyArray<Frame>): void {
    const { kept, stream } = this.beginning!
    if (this.isOver || frames.length === 0) return
    for (const { type } of frames) GatewayMetrics.sent.increment(type, this.clients.tags)
    try {
      for (const { data } of frames) stream.add(JSON.parse(data.toString("utf8")) as SessionEvent)
      this.chunks = stream.next()
      this.pump()
      if (!kept.count()) this.fail(busy)
    } catch (error) {
      this.clients.debug?.("The message of a turn cannot be shown", { error: String(error) })
      this.fail("The message cannot be shown")
    }
  }

  whenRoom(callback: () => void): void {
    if (this.hasRoom) callback()
    else this.waiting = callback
  }

  /** To be called when the connection has room again. */
  onRoom(): void {
    this.pump()
    if (!this.hasRoom) return
    const { waiting } = this
    this.waiting = undefined
    waiting?.()
  }

  onBehind(feed: Feed): void {
    this.clients.replays.add(this.tenant, feed)
  }

  onDeleted(): void {
    this.fail("The chat was deleted")
  }

  onLost(): void {
    this.fail("The history of the chat was lost")
  }

  onComplete(): void {}

  onUnreadable(): void {
    this.fail("The history of the chat cannot be read")
  }

  /** Answers. All answers but `start` end the request. */
  answer(type: AnswerFrame["type"], errorText?: string): void {
    if (this.isOver) return
    sendFrame(this.connection, this.clients, { type, requestId: this.id, errorText })
    if (type !== "start") this.end()
  }

  fail(error: string): void {
    this.answer("error", error)
  }

  /** Ends it without an answer. What the client has sent is carried out. */
  end(): void {
    if (this.isOver) return
    this.isOver = true
    this.chunks = undefined
    this.waiting = undefined
    this.feed.end()
    this.onEnd(this)
  }

  private pump(): void {
    while (this.chunks !== undefined && this.connection.hasRoom) {
      const texts: Array<string> = []
      for (let characters = 0; characters < writeCharacters; ) {
        const next: IteratorResult<Chunk> = this.chunks.next()
        if (next.done === true) {
          this.chunks = undefined
          break
        }
        const text = JSON.stringify(next.value)
        texts.push(text)
        characters += text.length
      }
      if (texts.length > 0) this.send(texts)
    }
    if (this.chunks === undefined && this.beginning?.stream.isEnded === true) this.answer("end")
  }

  private send(chunks: ReadonlyArray<string>): void {
    const id = JSON.stringify(this.id)
    const frames = chunks.map(chunk =>
      Buffer.from(`{"type":"chunk","requestId":${id},"sequence":${this.sequence++},"chunk":${chunk}}`)
    )
    this.connection.sendFrame(textFrames(frames))
  }
}
