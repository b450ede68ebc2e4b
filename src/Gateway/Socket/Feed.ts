import type { DebugLog } from "../../Observability/DebugLog.ts"
import * as FrameSummary from "../../Observability/FrameSummary.ts"
import type { Frame, Subscriber, Subscription } from "../Sessions.ts"
import type { Outbox } from "./Outbox.ts"

/**
 * Where a subscription stands: not begun, reading what it missed from the store, getting events as they come, or over.
 */
type Phase = "new" | "behind" | "live" | "over"

/**
 * One session's events on their way to one client.
 *
 * It only ever sends the event behind the last one that it sent. While it is live that is what the session tells it;
 * otherwise it reads from the store, from where it stands, until it has caught up. So replay and live events join
 * without a gap and without a double, and a client that takes nothing costs no memory.
 */
export class Feed implements Subscriber {
  private phase: Phase = "new"
  private cursor = 0
  private mayJump = false
  private subscription: Subscription | undefined

  /**
   * @param onBehind called when there is something to read from the store and room for it
   * @param onEnd called when the session was deleted
   * @param onLoss called when its history was lost
   * @param onFailure called when its history cannot be read
   * @param debug where frames are shown, if they are
   */
  constructor(
    private readonly outbox: Outbox,
    private readonly onBehind: (feed: Feed) => void,
    private readonly onEnd: () => void,
    private readonly onLoss: () => void,
    private readonly onFailure: () => void,
    private readonly debug?: DebugLog
  ) {}

  /** The last `seq` sent. */
  get position(): number {
    return this.cursor
  }

  /** Whether there is room for what it wants. */
  get hasRoom(): boolean {
    return this.outbox.hasRoom
  }

  /** Begins behind an event; one that may jump begins with the oldest event that is kept then. */
  begin(subscription: Subscription, after: number, mayJump: boolean): void {
    if (this.phase !== "new") return
    this.subscription = subscription
    this.cursor = after
    this.mayJump = mayJump
    this.fallBehind()
  }

  onFrames(frames: ReadonlyArray<Frame>): void {
    if (this.phase !== "live") return
    const next = this.cursor + 1
    const news = frames[0]?.seq === next ? frames : frames.filter(({ seq }) => seq >= next)
    if (news.length === 0) return
    if (news[0]!.seq !== next || !this.send(news)) this.fallBehind()
  }

  onDeleted(): void {
    this.end()
    this.onEnd()
  }

  onLost(): void {
    this.end()
    this.onLoss()
  }

  /** Ends it, as what it wants cannot be read. */
  fail(): void {
    if (this.phase === "over") return
    this.end()
    this.onFailure()
  }

  /** What to read next. */
  get wanted(): Subscription | undefined {
    return this.phase === "behind" ? this.subscription : undefined
  }

  /**
   * Takes events that were read from behind `after`. Tells whether that is what it wants; it is not where they were
   * removed before they could be sent.
   */
  onPage(after: number, frames: ReadonlyArray<Frame>, trimmedSeq: number): boolean {
    if (this.phase !== "behind" || after !== this.cursor) return true
    if (trimmedSeq > this.cursor) {
      if (!this.mayJump) return false
      this.cursor = trimmedSeq
    }
    this.mayJump = false
    const isAllSent = this.send(frames.filter(({ seq }) => seq > this.cursor))
    if (isAllSent && this.cursor >= this.subscription!.toldSeq()) this.phase = "live"
    else this.fallBehind()
    return true
  }

  /** Has it brought forward when there is room again. */
  wait(): void {
    if (this.phase === "behind") this.fallBehind()
  }

  end(): void {
    this.phase = "over"
  }

  /** Sends as many as there is room for, and tells whether that was all. */
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
    this.phase = "behind"
    this.outbox.whenRoom(() => this.onBehind(this))
  }
}
