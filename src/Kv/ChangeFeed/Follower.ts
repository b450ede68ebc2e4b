import type { Connection, Handler } from "../../Http/WebSocket.ts"
import type { Page } from "./Page.ts"
import type { FollowQuery } from "./Pages.ts"

/** A follower gets a heartbeat after this many milliseconds without another frame. */
export const heartbeatIntervalMillis = 15_000

/**
 * The maximum number of frames that are read from a follower between two ticks. Followers have no reason to send any.
 */
export const maxFrames = 100

/**
 * A follower is at the shared position, after it, or before it. A suspended follower, which is blocked or closing,
 * receives nothing.
 */
type FollowerState = "live" | "ahead" | "behind" | "suspended"

/** Receives events of a follower. */
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
  /** The last `seq` sent. While the follower is live, the shared position replaces it. */
  cursor: number
  lastSent = 0
  /** The epoch of the last frame. */
  seenEpoch: string
  /** The number of frames received since the last tick. */
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
    if (now - this.lastSent >= heartbeatIntervalMillis && this.connection.hasRoom) this.followers.heartbeat(this, now)
  }

  onClosing(): void {
    this.followers.suspend(this)
  }

  onClosed(): void {
    this.followers.remove(this)
  }
}
