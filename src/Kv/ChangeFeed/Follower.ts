import type { Connection, Handler } from "../../Http/WebSocket.ts"
import type { Page } from "./Page.ts"
import type { FollowQuery } from "./Pages.ts"

/** A follower to which nothing was sent for so many milliseconds is sent a heartbeat. */
export const heartbeatInterval = 15_000

/** Frames that are read from a follower, which has nothing to say, between two ticks. */
export const maxFrames = 100

/**
 * Where a follower stands: at the shared position, after it, or before it. One that is suspended, as it is blocked or
 * closing, is sent nothing.
 */
type FollowerState = "live" | "ahead" | "behind" | "suspended"

/** What a follower tells those who read the log for it. */
export interface FollowerOwner {
  readonly add: (follower: Follower, first: Page) => void
  readonly remove: (follower: Follower) => void
  readonly suspend: (follower: Follower) => void
  readonly resume: (follower: Follower) => void
  readonly heartbeat: (follower: Follower, now: number) => void
}

/** One WebSocket that follows the log. */
export class Follower implements Handler {
  state: FollowerState = "suspended"
  /** The last `seq` sent. While the follower is live the shared position stands in its place. */
  cursor: number
  lastSent = 0
  /** The epoch of what was sent last. */
  seenEpoch: string
  /** Frames that came since the last tick. */
  #received = 0
  private first: Page | undefined

  constructor(
    readonly connection: Connection,
    private readonly followers: FollowerOwner,
    readonly query: FollowQuery,
    first: Page
  ) {
    this.first = first
    this.seenEpoch = first.epoch
    this.cursor = query.after
  }

  onOpen(): void {
    const first = this.first!
    this.first = undefined
    this.followers.add(this, first)
  }

  onMessage(): void {
    this.onControl()
  }

  onControl(): void {
    if (++this.#received > maxFrames) this.connection.pause()
  }

  onBlocked(): void {
    this.followers.suspend(this)
  }

  onRoom(): void {
    this.followers.resume(this)
  }

  onTick(now: number): void {
    if (this.#received > maxFrames) this.connection.resume()
    this.#received = 0
    if (now - this.lastSent >= heartbeatInterval && this.connection.hasRoom) this.followers.heartbeat(this, now)
  }

  onClosing(): void {
    this.followers.suspend(this)
  }

  onClosed(): void {
    this.followers.remove(this)
  }
}
