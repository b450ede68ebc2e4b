/** A WebSocket that follows the log, also after the present entries: its frames, close codes and handlers. */
import { Effect, type Fiber, FiberId, type Scope, Stream } from "effect"
import { type Close, type Connection, type Handler, textFrame } from "../../Http/WebSocket.ts"
import type { EncodedEntry } from "../Entry.ts"
import type { ListStream, StoreBusy, StoreUnavailable } from "../Store.ts"
import { type FollowQuery, Page } from "./Pages.ts"

/** How the feed closes WebSockets, as docs/reference/http-api.md lists it. */
export const closes = {
  goingAway: { code: 1001, reason: "The service is shutting down" },
  internal: { code: 1011, reason: "Internal error" },
  unreadable: { code: 1011, reason: "A change record cannot be read" },
  /** The client may resume after the last `lastSeq` that it received. */
  slow: { code: 4008, reason: "Too slow; resume after lastSeq" },
  trimmed: { code: 4010, reason: "The history is no longer kept; list again" },
  replaced: { code: 4010, reason: "The log was replaced; list again" },
  /** Not all present entries could be sent. */
  aborted: { code: 1013, reason: "The list was aborted; connect again" },
  busy: { code: 1013, reason: "Too many whole lists are being read; connect again later" }
} as const satisfies Record<string, Close>

/** Shows an idle follower how far the log was scanned for it. */
export const heartbeatFrame = (lastSeq: number, epoch: string): Buffer =>
  textFrame(`{"type":"heartbeat","lastSeq":${lastSeq},"epoch":"${epoch}"}`)

/** Present entries, for a new follower. */
export const initialFrame = (entries: ReadonlyArray<EncodedEntry>): Buffer =>
  textFrame(`{"type":"initial","entries":[${entries.map(({ json }) => json).join(",")}]}`)

/** The follower has all entries, as of this position of the log. */
export const initialEndFrame = ({ epoch, lastSeq }: { readonly epoch: string; readonly lastSeq: number }): Buffer =>
  textFrame(`{"type":"initial-end","lastSeq":${lastSeq},"epoch":"${epoch}"}`)

/** The log was replaced by one with this epoch, which ends at `lastSeq`. */
export const resetFrame = (epoch: string, lastSeq: number): Buffer =>
  textFrame(`{"type":"reset","epoch":"${epoch}","lastSeq":${lastSeq}}`)

/** A follower gets a heartbeat after this many milliseconds without another frame. */
export const heartbeatIntervalMillis = 15_000

/**
 * The maximum number of frames that are read from a follower between two ticks. Followers have no reason to send any.
 */
const maxFrames = 100

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
  cursor = 0
  lastSent = 0
  seenEpoch = ""
  /** The number of frames received since the last tick. */
  #received = 0

  /** @param first is sent before what follows */
  constructor(
    readonly connection: Connection,
    private readonly followers: FollowerOwner,
    public query: FollowQuery,
    private first?: Page
  ) {}

  onOpen(): void {
    const first = this.first!
    this.first = undefined
    this.follow(this.query, first)
  }

  protected follow(query: FollowQuery, first: Page): void {
    this.query = query
    this.cursor = query.after
    this.seenEpoch = first.epoch
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

/** The present entries, from one snapshot, which a follower receives before it follows the log. */
export type Initial = Effect.Effect<ListStream, StoreUnavailable | StoreBusy, Scope.Scope>

/**
 * A WebSocket that first receives the present entries, and then follows the log. Portions are read as the client takes
 * them, so that at most one of them exceeds the limit of unsent bytes.
 */
export class InitialFollower extends Follower {
  /** Without heartbeats until it follows the log. */
  override lastSent = Number.POSITIVE_INFINITY
  #isFollowing = false
  #sending: Fiber.RuntimeFiber<void> | undefined
  readonly #room = Effect.unsafeMakeLatch(true)

  constructor(
    connection: Connection,
    followers: FollowerOwner,
    query: FollowQuery,
    private readonly initial: Initial,
    private readonly fork: (effect: Effect.Effect<void>) => Fiber.RuntimeFiber<void>
  ) {
    super(connection, followers, query)
  }

  override onOpen(): void {
    this.#sending = this.fork(this.#send)
  }

  override onBlocked(): void {
    this.#room.unsafeClose()
    super.onBlocked()
  }

  override onRoom(): void {
    this.#room.unsafeOpen()
    if (this.#isFollowing) super.onRoom()
  }

  override onClosing(): void {
    this.#stop()
    super.onClosing()
  }

  override onClosed(): void {
    this.#stop()
    super.onClosed()
  }

  #begin({ epoch, lastSeq }: Pick<ListStream, "lastSeq" | "epoch">): void {
    if (!this.connection.isOpen) return
    this.#isFollowing = true
    this.follow({ ...this.query, after: lastSeq, epoch }, Page.empty(lastSeq, epoch))
  }

  #stop(): void {
    if (!this.#isFollowing) this.#sending?.unsafeInterruptAsFork(FiberId.none)
  }

  #sendFrame(frame: Buffer): Effect.Effect<void> {
    return Effect.zipRight(
      this.#room.await,
      Effect.sync(() => {
        if (this.connection.isOpen) this.connection.sendFrame(frame)
      })
    )
  }

  readonly #send: Effect.Effect<void> = Effect.suspend(() =>
    Effect.scoped(
      Effect.flatMap(this.initial, ({ epoch, lastSeq, portions }) =>
        portions.pipe(
          Stream.filter(entries => entries.length > 0),
          Stream.runForEach(entries => this.#sendFrame(initialFrame(entries))),
          Effect.as({ epoch, lastSeq })
        )
      )
    )
  ).pipe(
    Effect.tap(position => this.#sendFrame(initialEndFrame(position))),
    // A new follower needs room for its first frame.
    Effect.zipLeft(this.#room.await),
    Effect.flatMap(position => Effect.sync(() => this.#begin(position))),
    Effect.catchTags({
      StoreBusy: () => Effect.sync(() => this.connection.close(closes.busy)),
      StoreUnavailable: () => Effect.sync(() => this.connection.close(closes.aborted))
    }),
    Effect.catchAllDefect(defect =>
      Effect.zipRight(
        Effect.logError("The entries for a follower cannot be sent", defect),
        Effect.sync(() => this.connection.close(closes.internal))
      )
    )
  )
}
