/** Sends the message of a turn to one client of a WebSocket, as chunks in JSON: what there is of it, then what is new. */
import type { SessionEvent } from "../../Client/SessionModel.ts"
import { Feed, type FeedOwner, type Outbox } from "../Clients/Feed.ts"
import type { ClientsShape } from "../Clients.ts"
import type { Frame, Subscription } from "../Sessions.ts"
import type { Beginning } from "./Chats.ts"
import type { Chunk } from "./Chunks.ts"

/** Characters of chunks above which a write ends. */
const writeCharacters = 64 * 1024

/** Where chunks are sent. */
export interface Sink {
  readonly hasRoom: boolean
  /** Sends chunks as JSON texts. */
  readonly send: (chunks: ReadonlyArray<string>) => void
  /** The message is whole, or a person is asked. */
  readonly done: () => void
  /** The rest of the message cannot be sent. */
  readonly fail: (error: string) => void
}

/** Sends one message to one client. */
export class Follower implements Outbox, FeedOwner {
  readonly feed: Feed
  private beginning: Beginning | undefined
  /** What has to be sent before events are read. */
  private chunks: Iterator<Chunk> | undefined
  private waiting: (() => void) | undefined
  private isOver = false

  constructor(
    private readonly sink: Sink,
    private readonly tenant: string,
    private readonly clients: Pick<ClientsShape, "debug" | "replays">
  ) {
    this.feed = new Feed(this, this, clients.debug)
  }

  /** Begins to send. */
  begin(subscription: Subscription, beginning: Beginning): void {
    if (this.isOver) return
    const { after, client, stream } = beginning
    this.beginning = beginning
    this.chunks = stream.begin(client)
    this.pump()
    if (!this.isOver) this.feed.begin(subscription, { after, maySkip: false })
  }

  get hasRoom(): boolean {
    return !this.isOver && this.chunks === undefined && this.sink.hasRoom
  }

  sendEvents(frames: ReadonlyArray<Frame>): void {
    const { stream } = this.beginning!
    if (this.isOver || frames.length === 0) return
    try {
      for (const { data } of frames) stream.add(JSON.parse(data.toString("utf8")) as SessionEvent)
      this.chunks = stream.next()
      this.pump()
    } catch (error) {
      this.clients.debug?.("The message of a turn cannot be shown", { error: String(error) })
      this.fail("The message cannot be shown")
    }
  }

  whenRoom(callback: () => void): void {
    if (this.hasRoom) callback()
    else this.waiting = callback
  }

  /** To be called when the sink has room again. */
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

  /** Stops sending. */
  end(): void {
    this.isOver = true
    this.chunks = undefined
    this.waiting = undefined
    this.feed.end()
  }

  private fail(error: string): void {
    if (this.isOver) return
    this.end()
    this.sink.fail(error)
  }

  private pump(): void {
    while (this.chunks !== undefined && this.sink.hasRoom) {
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
      if (texts.length > 0) this.sink.send(texts)
    }
    if (this.isOver || this.chunks !== undefined || this.beginning?.stream.isEnded !== true) return
    this.end()
    this.sink.done()
  }
}
