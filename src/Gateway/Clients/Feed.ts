/**
 * Sends the events of one session to one client: first the missed ones, which are read in turn for all tenants, and then
 * the new ones.
 */
import type { DebugLog } from "../../base/Observability/DebugLog.ts"
import * as FrameSummary from "../../base/Observability/LogValue.ts"
import type { Frame, Subscriber, Subscription } from "../Sessions.ts"

/** Bytes of events above which a write ends. Many small events share a write, which costs more than they do. */
const writeBytes = 64 * 1024

/** Where a feed sends events. */
export interface Outbox {
  /** Whether there is room for more. */
  readonly hasRoom: boolean
  /** Sends events in one write. There are none if the history is read to its end without any. */
  readonly sendEvents: (events: ReadonlyArray<Frame>) => void
  /** Calls back once there is room, and never if there will be none. */
  readonly whenRoom: (callback: () => void) => void
}

/** A feed that is behind reads events from the store; a live feed receives new events. */
type FeedState = "new" | "behind" | "live" | "ended"

/**
 * Why a feed ends: the last event that was requested was sent, the session was deleted, events were removed before they
 * could be sent, or the events cannot be read.
 */
export type FeedEnd = "complete" | "deleted" | "lost" | "unreadable"

/** The callbacks of a feed. */
export interface FeedOwner {
  /** Called when there are events to read from the store and there is room for them. */
  readonly onBehind: (feed: Feed) => void
  /** Called at the end, unless the owner has ended the feed. */
  readonly onEnd: (reason: FeedEnd) => void
}

/** Which events a feed sends. */
export interface Range {
  /** The `seq` before the first one. */
  readonly after: number
  /** The last one; none if it is absent. */
  readonly until?: number
  /** Whether events are skipped that are no longer kept at the first read. */
  readonly maySkip: boolean
}

/**
 * Sends the events of one session to one client.
 *
 * It sends only the event after the last one sent. While it is live, the session passes events to it. Otherwise it reads
 * from the store, from its position, until it has caught up. There is no gap or duplicate between replayed and live
 * events, and a client that does not read needs no memory.
 */
export class Feed implements Subscriber {
  private state: FeedState = "new"
  private cursor = 0
  private until = Number.POSITIVE_INFINITY
  private maySkip = false
  private subscription: Subscription | undefined

  constructor(
    private readonly outbox: Outbox,
    private readonly owner: FeedOwner,
    private readonly debug?: DebugLog
  ) {}

  /** The last `seq` sent. */
  get position(): number {
    return this.cursor
  }

  /** Whether there is room for more events. */
  get hasRoom(): boolean {
    return this.outbox.hasRoom
  }

  /** Starts to send. */
  begin(subscription: Subscription, { after, maySkip, until = Number.POSITIVE_INFINITY }: Range): void {
    if (this.state !== "new") return
    this.subscription = subscription
    this.cursor = after
    this.until = until
    this.maySkip = maySkip
    if (after >= until) this.endAs("complete")
    else this.fallBehind()
  }

  onFrames(frames: ReadonlyArray<Frame>): void {
    if (this.state !== "live") return
    const next = this.cursor + 1
    const newer = frames[0]?.seq === next ? frames : frames.filter(({ seq }) => seq >= next)
    if (newer.length === 0) return
    if (newer[0]!.seq !== next || !this.send(newer)) this.fallBehind()
  }

  onDeleted(): void {
    this.endAs("deleted")
  }

  onLost(): void {
    this.endAs("lost")
  }

  /** Ends the feed because its events cannot be read. */
  fail(): void {
    if (this.state !== "ended") this.endAs("unreadable")
  }

  /** The subscription to read from, if the feed is behind. */
  get wanted(): Subscription | undefined {
    return this.state === "behind" ? this.subscription : undefined
  }

  /** Sends events that were read after `after`. */
  onPage(after: number, frames: ReadonlyArray<Frame>, trimmedSeq: number): void {
    if (this.state !== "behind" || after !== this.cursor) return
    if (trimmedSeq > this.cursor) {
      if (!this.maySkip) return this.onLost()
      this.cursor = trimmedSeq
    }
    this.maySkip = false
    const newer = frames.filter(({ seq }) => seq > this.cursor)
    const isAllSent = this.send(newer)
    if (this.cursor >= this.until) return
    if (!isAllSent || this.cursor < this.subscription!.publishedSeq()) return this.fallBehind()
    this.state = "live"
    if (newer.length === 0) this.outbox.sendEvents(newer)
  }

  /** Continues to read when there is room. */
  wait(): void {
    if (this.state === "behind") this.fallBehind()
  }

  end(): void {
    this.state = "ended"
  }

  /** Sends as many events as there is room for. Returns whether these were all. */
  private send(all: ReadonlyArray<Frame>): boolean {
    const isLast = all.length > 0 && all.at(-1)!.seq >= this.until
    const frames = isLast ? all.filter(({ seq }) => seq <= this.until) : all
    for (let sent = 0; sent < frames.length; ) {
      if (!this.hasRoom) return false
      const next = this.nextWrite(frames, sent)
      this.cursor = next.at(-1)!.seq
      sent += next.length
      this.outbox.sendEvents(next)
    }
    if (this.cursor >= this.until) this.endAs("complete")
    return true
  }

  private endAs(reason: FeedEnd): void {
    this.end()
    this.owner.onEnd(reason)
  }

  /** The frames that are sent in one write, at least one. */
  private nextWrite(frames: ReadonlyArray<Frame>, from: number): ReadonlyArray<Frame> {
    let bytes = 0
    let end = from
    while (end < frames.length && bytes < writeBytes) {
      const { data } = frames[end++]!
      bytes += data.length
      this.debug?.("Sending a frame to a client", { frame: FrameSummary.ofText(data.toString("utf8")) })
    }
    return frames.length === 1 ? frames : frames.slice(from, end)
  }

  private fallBehind(): void {
    this.state = "behind"
    this.outbox.whenRoom(() => this.owner.onBehind(this))
  }
}
