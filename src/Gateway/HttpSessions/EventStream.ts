/**
 * The events of a session as Server-Sent Events of the Durable Streams protocol: first the missed ones, then new ones.
 *
 * A stream always ends cleanly, after a control event: the client continues at its last offset, whereas a cut would be an
 * error to it. If its token has expired, its next request is answered 401.
 */
import { Effect, Exit, Scope } from "effect"
import type { BodyWriter, Outlet } from "../../Http/Reply.ts"
import { Feed, type FeedOwner, type Outbox, type Range } from "../Clients/Feed.ts"
import type { ClientsShape, Slot } from "../Clients.ts"
import * as GatewayMetrics from "../GatewayMetrics.ts"
import type { Caller, Frame, Subscription } from "../Sessions.ts"
import * as DurableStream from "./DurableStream.ts"

/** In milliseconds. */
export const timing = {
  /** The time after which a stream ends by itself, with a variation of a tenth. */
  duration: 60_000,
  /** The time after which something is sent, so that proxies keep the connection. */
  keepAlive: 15_000,
  /** How long a client may read nothing while something is unsent. */
  slow: 30_000,
  /** How long it may take until a stream that was made is sent. */
  start: 10_000,
  /** While the service drains, streams end over this interval, so that clients do not all reconnect at once. */
  drain: 2_000
} as const

const ping = Buffer.from(": ping\n\n")

/** The client of a stream. */
export interface Client {
  readonly caller: Caller
  /** When the token expires, in epoch milliseconds. */
  readonly expiresAt: number | undefined
  /** The last cursor that the client has received. */
  readonly cursor: string | undefined
}

/** What all streams share. */
export interface Shared {
  readonly clients: ClientsShape
  /** Monotonic milliseconds. */
  readonly now: () => number
  /** Epoch milliseconds. */
  readonly wallClock: () => number
  /** From 0 to 1. */
  readonly random: () => number
  /** Called at the end of a stream. It may be called again. */
  readonly onEnd: (stream: EventStream) => void
}

/** Where a stream begins. */
export interface Beginning extends Pick<Range, "after" | "maySkip"> {
  readonly subscription: Subscription
}

/** One stream. It has no fiber. */
export class EventStream implements BodyWriter, Outbox, FeedOwner {
  readonly feed: Feed
  private readonly cursor: DurableStream.Cursor
  private outlet: Outlet | undefined
  private beginning: Beginning | undefined
  private offsetAt: (seq: number) => string = String
  private waiting: (() => void) | undefined
  private isBlocked = false
  /** No event follows. */
  private isOver = false
  /** The end was sent, or no client waits for it. */
  private isEnded = false
  private isDeleted = false
  private endAt: number
  private drainAt = Number.POSITIVE_INFINITY
  private pingAt: number
  private hasWritten = false
  private sent = 0
  /** When the client last read something, or had nothing to read. */
  private readAt: number

  constructor(
    private readonly client: Client,
    private readonly slot: Slot,
    private readonly scope: Scope.CloseableScope,
    private readonly shared: Shared
  ) {
    const now = shared.now()
    this.feed = new Feed(this, this, shared.clients.debug)
    this.cursor = new DurableStream.Cursor(shared.wallClock(), client.cursor, shared.random)
    this.endAt = now + timing.start
    this.pingAt = now + timing.keepAlive
    this.readAt = now
  }

  /** To be called once, before the stream is sent. */
  begin(beginning: Beginning): void {
    this.beginning = beginning
    this.offsetAt = DurableStream.offsetsOf(beginning.subscription.epoch)
  }

  /** Releases what the stream has. Idempotent. */
  readonly release: Effect.Effect<void> = Effect.suspend(() => {
    this.isOver = true
    this.isEnded = true
    this.feed.end()
    this.slot.release()
    this.shared.onEnd(this)
    return Scope.close(this.scope, Exit.void)
  })

  onOpen(outlet: Outlet): void {
    this.outlet = outlet
    // The session may have been deleted in the meantime.
    if (this.isOver) return this.end()
    this.endAt = this.shared.now() + timing.duration * (0.95 + 0.1 * this.shared.random())
    this.slot.offer({ onReclaim: () => this.end() })
    const { subscription, ...range } = this.beginning!
    this.feed.begin(subscription, range)
  }

  onDrain(): void {
    this.readAt = this.shared.now()
    this.isBlocked = false
    const { waiting } = this
    this.waiting = undefined
    if (!this.isOver) waiting?.()
  }

  onSlow(): void {
    this.end()
  }

  get hasRoom(): boolean {
    return !this.isBlocked && !this.isOver
  }

  sendEvents(frames: ReadonlyArray<Frame>): void {
    if (this.isOver) return
    for (const { type } of frames) GatewayMetrics.sentOverHttp.increment(type, this.shared.clients.tags)
    this.write(frames)
  }

  whenRoom(callback: () => void): void {
    if (this.hasRoom) callback()
    else this.waiting = callback
  }

  onBehind(feed: Feed): void {
    this.shared.clients.replays.add(this.client.caller.tenant, feed)
  }

  onDeleted(): void {
    this.isDeleted = true
    this.end()
  }

  onLost(): void {
    this.end()
  }

  onComplete(): void {
    this.end()
  }

  onUnreadable(): void {
    this.end()
  }

  /** Ends the stream within this time, in milliseconds. */
  endWithin(millis: number): void {
    this.drainAt = this.shared.now() + this.shared.random() * millis
  }

  /** To be called about once a second. Returns whether the stream was made and never sent, and has to be released. */
  tick(now: number): boolean {
    const { outlet } = this
    if (outlet === undefined) return now >= this.endAt
    if (this.isEnded) return false
    const { expiresAt } = this.client
    const isExpired = expiresAt !== undefined && this.shared.wallClock() >= expiresAt
    if (now >= Math.min(this.endAt, this.drainAt) || isExpired || this.isSlow(outlet, now)) this.end()
    else this.keepAlive(outlet, now)
    return false
  }

  /** Ends the stream cleanly. */
  end(): void {
    this.isOver = true
    this.feed.end()
    if (this.isEnded || this.outlet === undefined) return
    this.isEnded = true
    this.write([])
    this.outlet.end()
  }

  private isSlow({ sent, unsent }: Outlet, now: number): boolean {
    if (unsent === 0 || sent !== this.sent) this.readAt = now
    this.sent = sent
    return now - this.readAt >= timing.slow
  }

  private keepAlive(outlet: Outlet, now: number): void {
    if (this.hasWritten) this.pingAt = now + timing.keepAlive
    this.hasWritten = false
    if (now < this.pingAt) return
    this.pingAt = now + timing.keepAlive
    outlet.write(ping)
  }

  private write(frames: ReadonlyArray<Frame>): void {
    const { beginning, outlet } = this
    if (beginning === undefined || outlet === undefined) return
    const { after, subscription } = beginning
    const seq = Math.max(after, this.feed.position)
    const end = {
      offset: this.offsetAt(seq),
      isUpToDate: seq >= subscription.publishedSeq(),
      isClosed: this.isDeleted,
      cursor: this.cursor.at(this.shared.wallClock())
    }
    outlet.write(DurableStream.eventsOf(frames, end))
    this.hasWritten = true
    if (outlet.unsent > this.shared.clients.unsentBytes) this.isBlocked = true
  }
}
