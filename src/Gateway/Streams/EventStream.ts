/**
 * The events of a session as Server-Sent Events of any protocol: first the missed ones, then new ones.
 *
 * A stream ends cleanly, after what its protocol says at the end: a cut would be an error of the network to the client.
 * For a protocol whose clients take a clean end for success, the connection is closed instead. If its token has expired,
 * its next request is answered 401.
 */
import { Cause, Effect, Exit, Scope } from "effect"
import type { BodyWriter, Outlet } from "../../Http/Reply.ts"
import { Feed, type FeedEnd, type FeedOwner, type Outbox, type Range } from "../Clients/Feed.ts"
import type { ClientsShape, Slot } from "../Clients.ts"
import type * as GatewayMetrics from "../GatewayMetrics.ts"
import type { Caller, Frame, Subscription } from "../Sessions.ts"
import type { Kept } from "./Kept.ts"

/** In milliseconds. */
export const timing = {
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
  /** That of the connection, if the stream has none of its own. */
  readonly slot?: Slot
}

/**
 * Why a stream ends: `complete` is the encoding's own end, `unreadable` that of a history, and `busy` that another client
 * needs the slot or the memory.
 */
export type Reason = FeedEnd | "slow" | "busy" | "draining" | "expired" | "duration"

/** What a stream writes: a protocol. */
export interface Encoding {
  /** Written first. */
  readonly start?: Uint8Array
  /** Whether nothing follows the start. */
  readonly isOver?: boolean
  /** Written where nothing else is for a while, so that proxies keep the connection. By default a comment. */
  readonly ping?: Uint8Array
  /** The time after which the stream ends by itself, in milliseconds; never if it is absent. */
  readonly duration?: number
  /**
   * What is written for events, of which the last has this `seq`. There are none if the history is read to its end without
   * any. It may end the stream: with bytes that are written last, if they can be made.
   */
  readonly events: (frames: ReadonlyArray<Frame>, seq: number) => Uint8Array | Effect.Effect<Uint8Array>
  /** What is written at the end. The connection is closed if it is undefined. */
  readonly end: (reason: Reason, seq: number) => Uint8Array | undefined
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
  /** Counts the events that are sent, by type. */
  readonly sent: Pick<typeof GatewayMetrics.sent, "increment">
  /** Runs the last work of a stream. */
  readonly run: (work: Effect.Effect<void>) => void
  /** Called at the end of a stream. It may be called again. */
  readonly onEnd: (stream: EventStream) => void
}

/** Where a stream begins. */
export interface Beginning extends Pick<Range, "after" | "maySkip"> {
  readonly subscription: Subscription
  readonly encoding: Encoding
  /** What the encoding keeps of the conversation. */
  readonly kept?: Kept
}

/** One stream. It has no fiber. */
export class EventStream implements BodyWriter, Outbox, FeedOwner {
  readonly feed: Feed
  private outlet: Outlet | undefined
  private beginning: Beginning | undefined
  private waiting: (() => void) | undefined
  private isBlocked = false
  /** No event follows. */
  private isOver = false
  /** The end was sent, or no client waits for it. */
  private isEnded = false
  private reason: Reason = "complete"
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
    this.endAt = now + timing.start
    this.pingAt = now + timing.keepAlive
    this.readAt = now
  }

  /** To be called once, before the stream is sent. */
  begin(beginning: Beginning): void {
    this.beginning = beginning
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
    const { encoding, kept, subscription, ...range } = this.beginning!
    if (encoding.start !== undefined) this.write(encoding.start)
    if (encoding.isOver === true) return this.end("complete")
    // The session may have been deleted in the meantime.
    if (this.isOver) return this.end(this.reason)
    const { duration = Number.POSITIVE_INFINITY } = encoding
    this.endAt = this.shared.now() + duration * (0.95 + 0.1 * this.shared.random())
    this.slot.offer({ onReclaim: () => this.end("busy") })
    kept?.offer(() => this.end("busy"))
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
    this.end("slow")
  }

  get hasRoom(): boolean {
    return !this.isBlocked && !this.isOver
  }

  sendEvents(frames: ReadonlyArray<Frame>): void {
    if (this.isOver) return
    const { clients, sent } = this.shared
    for (const { type } of frames) sent.increment(type, clients.tags)
    const { encoding, kept } = this.beginning!
    const made = encoding.events(frames, this.seq)
    if (made instanceof Uint8Array) {
      this.write(made)
      return kept?.count() === false ? this.end("busy") : undefined
    }
    this.isOver = true
    this.feed.end()
    // A defect must not leave the client waiting.
    const bytes = Effect.catchAllCause(made, cause =>
      Effect.as(
        Effect.logError("An event stream has failed", Cause.squash(cause)),
        encoding.end("unreadable", this.seq)
      )
    )
    this.shared.run(Effect.map(bytes, bytes => this.endWith(bytes)))
  }

  whenRoom(callback: () => void): void {
    if (this.hasRoom) callback()
    else this.waiting = callback
  }

  onBehind(feed: Feed): void {
    this.shared.clients.replays.add(this.client.caller.tenant, feed)
  }

  onEnd(reason: FeedEnd): void {
    this.end(reason)
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
    if (expiresAt !== undefined && this.shared.wallClock() >= expiresAt) this.end("expired")
    else if (now >= this.drainAt) this.end("draining")
    else if (now >= this.endAt) this.end("duration")
    else if (this.isSlow(outlet, now)) this.end("slow")
    else this.keepAlive(outlet, now)
    return false
  }

  /** Ends the stream cleanly. */
  end(reason: Reason): void {
    if (!this.isOver) this.reason = reason
    this.isOver = true
    this.feed.end()
    if (this.beginning !== undefined) this.endWith(this.beginning.encoding.end(reason, this.seq))
  }

  private endWith(bytes: Uint8Array | undefined): void {
    if (this.isEnded || this.outlet === undefined) return
    this.isEnded = true
    if (bytes === undefined) return this.outlet.cut()
    this.write(bytes)
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
    outlet.write(this.beginning?.encoding.ping ?? ping)
  }

  /** The newest event that was sent. */
  private get seq(): number {
    return Math.max(this.beginning!.after, this.feed.position)
  }

  private write(bytes: Uint8Array): void {
    const { outlet } = this
    if (outlet === undefined || bytes.length === 0) return
    outlet.write(bytes)
    this.hasWritten = true
    if (outlet.unsent > this.shared.clients.unsentBytes) this.isBlocked = true
  }
}
