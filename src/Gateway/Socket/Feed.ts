import type { DebugLog } from "../../Observability/DebugLog.ts"
import * as FrameSummary from "../../Observability/FrameSummary.ts"
import type { Frame, Subscriber, Subscription } from "../Sessions.ts"
import type { Responder } from "./Responder.ts"

/** A feed has not begun, reads missed events from the store, is sent events as they come, or has ended. */
type FeedState = "new" | "behind" | "live" | "ended"

/** What a feed calls. */
export interface FeedOwner {
  /** Called when there is something to read from the store and room for it. */
  readonly onBehind: (feed: Feed) => void
  /** Called when the session was deleted. */
  readonly onDeleted: () => void
  /** Called when events were removed before they could be sent. */
  readonly onLost: () => void
  /** Called when the events cannot be read. */
  readonly onUnreadable: (feed: Feed) => void
}

/**
 * One session's events on their way to one client.
 *
 * It only ever sends the event after the last one that it sent. While it is live that is what the session passes to it;
 * otherwise it reads from the store, from its position, until it has caught up. So replayed and live events join without
 * a gap or a duplicate, and a client that does not read costs no memory.
 */
export class Feed implements Subscriber {
  private state: FeedState = "new"
  private cursor = 0
  private maySkip = false
  private subscription: Subscription | undefined

  constructor(
    private readonly outbox: Pick<Responder, "hasRoom" | "send" | "whenRoom">,
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

  /** Begins after an event. With `maySkip` it skips events that are no longer kept when it begins to read. */
  begin(subscription: Subscription, after: number, maySkip: boolean): void {
    if (this.state !== "new") return
    this.subscription = subscription
    this.cursor = after
    this.maySkip = maySkip
    this.fallBehind()
  }

  onFrames(frames: ReadonlyArray<Frame>): void {
    if (this.state !== "live") return
    const next = this.cursor + 1
    const news = frames[0]?.seq === next ? frames : frames.filter(({ seq }) => seq >= next)
    if (news.length === 0) return
    if (news[0]!.seq !== next || !this.send(news)) this.fallBehind()
  }

  onDeleted(): void {
    this.end()
    this.owner.onDeleted()
  }

  onLost(): void {
    this.end()
    this.owner.onLost()
  }

  /** Ends the feed, as its events cannot be read. */
  fail(): void {
    if (this.state === "ended") return
    this.end()
    this.owner.onUnreadable(this)
  }

  /** What to read from next, if the feed is behind. */
  get wanted(): Subscription | undefined {
    return this.state === "behind" ? this.subscription : undefined
  }

  /** Takes events that were read after `after`. */
  onPage(after: number, frames: ReadonlyArray<Frame>, trimmedSeq: number): void {
    if (this.state !== "behind" || after !== this.cursor) return
    if (trimmedSeq > this.cursor) {
      if (!this.maySkip) return this.onLost()
      this.cursor = trimmedSeq
    }
    this.maySkip = false
    const isAllSent = this.send(frames.filter(({ seq }) => seq > this.cursor))
    if (isAllSent && this.cursor >= this.subscription!.toldSeq()) this.state = "live"
    else this.fallBehind()
  }

  /** Reads on once there is room again. */
  wait(): void {
    if (this.state === "behind") this.fallBehind()
  }

  end(): void {
    this.state = "ended"
  }

  /** Sends as many as there is room for. Returns whether that was all. */
  private send(frames: ReadonlyArray<Frame>): boolean {
    for (const { seq, type, data } of frames) {
      if (!this.hasRoom) return false
      this.debug?.("Sending a frame to a client", { frame: FrameSummary.ofText(data.toString("utf8")) })
      this.outbox.send(type, data)
      this.cursor = seq
    }
    return true
  }

  private fallBehind(): void {
    this.state = "behind"
    this.outbox.whenRoom(() => this.owner.onBehind(this))
  }
}
