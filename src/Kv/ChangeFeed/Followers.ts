import { type Close, type Connection, type Handler, textFrame } from "../../Http/WebSocket.ts"
import type { DebugLog } from "../../Observability/DebugLog.ts"
import type { ChangeQuery } from "../ChangeLog.ts"
import { Page } from "./Page.ts"

/** How the feed closes WebSockets, as the service's documentation lists it. */
export const closes = {
  goingAway: { code: 1001, reason: "The service is shutting down" },
  internal: { code: 1011, reason: "Internal error" },
  unreadable: { code: 1011, reason: "A change record cannot be read" },
  /** The client may resume after the last `lastSeq` that it saw. */
  slow: { code: 4008, reason: "Too slow; resume after lastSeq" },
  trimmed: { code: 4010, reason: "The history is no longer kept; list again" }
} as const satisfies Record<string, Close>

/** A follower to which nothing was sent for so many milliseconds is sent a heartbeat. */
export const heartbeatInterval = 15_000

/** Frames that are read from a follower, which has nothing to say, between two ticks. */
const maxFrames = 100

const frames = new WeakMap<Page, Buffer>()

/** A page as a frame, made once for all who are sent it. */
export const pageFrame = (page: Page): Buffer => {
  const known = frames.get(page)
  if (known !== undefined) return known
  const frame = textFrame(`{"type":"changes","changes":${page.changes},"lastSeq":${page.lastSeq}}`)
  frames.set(page, frame)
  return frame
}

/** Tells an idle follower how far the log was scanned for it. */
export const heartbeatFrame = (lastSeq: number): Buffer => textFrame(`{"type":"heartbeat","lastSeq":${lastSeq}}`)

/**
 * Where a follower stands: at the shared position, after it, or before it. One that is suspended, as it is blocked or
 * closing, is sent nothing.
 */
type FollowerState = "live" | "ahead" | "behind" | "suspended"

/** One WebSocket that follows the log. */
class Follower implements Handler {
  state: FollowerState = "suspended"
  /** The last `seq` sent. While the follower is live the shared position stands in its place. */
  cursor: number
  lastSent = 0
  readonly tenant: string
  readonly limit: number
  /** Frames that came since the last tick. */
  #received = 0

  constructor(
    readonly connection: Connection,
    private readonly followers: Followers,
    query: ChangeQuery,
    private first: Page | undefined
  ) {
    this.cursor = query.after
    this.tenant = query.tenant
    this.limit = query.limit
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

/** Followers that need the same page. */
export interface Group {
  readonly query: ChangeQuery
  readonly members: Array<Follower>
}

/**
 * All WebSockets that follow the log, without effects: whoever reads the log passes in the pages.
 *
 * Followers at the end of the log share one position and are found by tenant, so that a commit costs as many steps as
 * it has readers.
 */
export class Followers {
  private readonly all = new Set<Follower>()
  private readonly live = new Map<string, Set<Follower>>()
  private readonly ahead = new Set<Follower>()
  private readonly behind = new Set<Follower>()
  private shared = 0
  private lastHeartbeat: { readonly lastSeq: number; readonly frame: Buffer } | undefined

  /**
   * @param endOfLog the highest known `seq`
   * @param now monotonic milliseconds
   * @param wake called when there is something to read for a follower
   * @param onRemove called at the end of each connection
   */
  constructor(
    private readonly endOfLog: () => number,
    private readonly now: () => number,
    private readonly wake: () => void,
    private readonly onRemove: () => void,
    private readonly debug: DebugLog | undefined
  ) {}

  /** The position of those that have received everything. */
  get position(): number {
    return this.shared
  }

  /** Whether anybody waits for what comes after the position. */
  get atEnd(): boolean {
    return this.live.size > 0 || this.ahead.size > 0
  }

  /** Whether anybody has yet to reach the position. */
  get lagging(): boolean {
    return this.behind.size > 0
  }

  /** The lowest position of an open connection; `undefined` without any. */
  get lowest(): number | undefined {
    let lowest: number | undefined
    for (const { connection, cursor, state } of this.all) {
      if (!connection.isOpen) continue
      const position = state === "live" ? this.shared : cursor
      if (lowest === undefined || position < lowest) lowest = position
    }
    return lowest
  }

  /** The handler of a connection that is sent `first`, and then what follows. */
  handler(connection: Connection, query: ChangeQuery, first: Page): Handler {
    return new Follower(connection, this, query, first)
  }

  add(follower: Follower, first: Page): void {
    this.all.add(follower)
    const now = this.now()
    follower.state = "behind"
    follower.lastSent = now
    this.deliver(follower, first, now)
    this.enter(follower)
    this.wake()
  }

  remove(follower: Follower): void {
    this.suspend(follower)
    this.all.delete(follower)
    this.onRemove()
  }

  /** Sends a follower nothing more. */
  suspend(follower: Follower): void {
    this.leave(follower)
    follower.state = "suspended"
  }

  /** Reads on for a follower from its cursor: a page tells it whatever has happened to the log meanwhile. */
  resume(follower: Follower): void {
    follower.state = "behind"
    this.behind.add(follower)
    this.wake()
  }

  heartbeat(follower: Follower, now: number): void {
    const lastSeq = follower.state === "live" ? this.shared : follower.cursor
    if (this.lastHeartbeat?.lastSeq !== lastSeq) this.lastHeartbeat = { lastSeq, frame: heartbeatFrame(lastSeq) }
    follower.lastSent = now
    follower.connection.sendFrame(this.lastHeartbeat.frame)
  }

  /** Followers that have yet to reach the position, in at most so many groups; others come first the next time. */
  groups(most: number): ReadonlyArray<Group> {
    const groups = new Map<string, Group>()
    for (const follower of this.behind) {
      const { cursor, limit, tenant } = follower
      const key = `${cursor} ${limit} ${tenant}`
      const group = groups.get(key)
      if (group !== undefined) group.members.push(follower)
      else if (groups.size < most) groups.set(key, { query: { after: cursor, limit, tenant }, members: [follower] })
    }
    return [...groups.values()]
  }

  /** Gives a group the page that it needs. */
  advanceGroup({ members, query }: Group, page: Page): void {
    const now = this.now()
    for (const follower of members) {
      if (follower.state !== "behind" || follower.cursor !== query.after) continue
      this.leave(follower)
      this.deliver(follower, page, now)
      this.enter(follower)
    }
  }

  /** Gives those at the end their parts of an unfiltered page after `from`, if the position is still there. */
  advance(page: Page, from: number): void {
    if (from !== this.shared) return
    const now = this.now()
    if (page.lastSeq < from) return this.goBack(page.lastSeq, now)
    this.shared = page.lastSeq
    for (const tenant of page.count === 0 ? [] : new Set(["", ...page.lastSeqs.keys()])) {
      const parts = new Map<number, ReadonlyArray<Page>>()
      for (const follower of this.live.get(tenant) ?? []) {
        const { limit } = follower
        if (!parts.has(limit)) parts.set(limit, page.split({ after: from, limit, tenant }))
        this.deliverAll(follower, parts.get(limit)!, now)
      }
    }
    for (const follower of this.ahead) {
      const { cursor: after, limit, tenant } = follower
      if (after <= this.shared) this.deliverAll(follower, page.split({ after, limit, tenant }), now)
    }
  }

  closeGroup({ members }: Group, close: Close): void {
    for (const { connection } of members) connection.close(close)
  }

  /** Closes those that wait for what comes after the position. */
  closeAtEnd(close: Close): void {
    for (const { connection } of this.waiting()) connection.close(close)
  }

  /** Leaves the position: each of its followers is read for on its own. */
  fallBehind(): void {
    for (const follower of this.waiting()) {
      if (follower.state === "live") follower.cursor = this.shared
      this.leave(follower)
      follower.state = "behind"
      this.behind.add(follower)
    }
  }

  /** Those that wait for what comes after the position. */
  private waiting(): ReadonlyArray<Follower> {
    return [...this.all].filter(({ state }) => state === "live" || state === "ahead")
  }

  /** The log was reset and ends before the position. Its readers are told where, and go on from there. */
  private goBack(lastSeq: number, now: number): void {
    const page = Page.empty(lastSeq)
    const waiting = this.waiting()
    for (const follower of waiting) {
      this.leave(follower)
      this.deliver(follower, page, now)
    }
    this.shared = lastSeq
    for (const follower of waiting) this.enter(follower)
  }

  /** Delivers pages while the follower takes them, and puts it where it then stands. */
  private deliverAll(follower: Follower, pages: ReadonlyArray<Page>, now: number): void {
    for (const page of pages) {
      this.deliver(follower, page, now)
      if (follower.state === "suspended") return
    }
    if (follower.state === "live" && follower.cursor === this.shared) return
    this.leave(follower)
    this.enter(follower)
  }

  /** Sends a page unless it tells nothing new. The follower may be suspended by it. */
  private deliver(follower: Follower, page: Page, now: number): void {
    const { connection } = follower
    if (!connection.isOpen) return this.suspend(follower)
    const tells = page.count > 0 || page.lastSeq < follower.cursor
    follower.cursor = page.lastSeq
    if (!tells) return
    follower.lastSent = now
    this.debug?.("Sending a frame to a follower", {
      changes: page.count,
      lastSeq: page.lastSeq,
      tenant: follower.tenant
    })
    connection.sendFrame(pageFrame(page))
  }

  private enter(follower: Follower): void {
    const { cursor, state, tenant } = follower
    if (state === "suspended") return
    if (!this.atEnd && cursor >= this.endOfLog()) this.shared = cursor
    if (this.atEnd ? cursor === this.shared : cursor >= this.endOfLog()) {
      follower.state = "live"
      const peers = this.live.get(tenant)
      if (peers === undefined) this.live.set(tenant, new Set([follower]))
      else peers.add(follower)
    } else if (this.atEnd && cursor > this.shared) {
      follower.state = "ahead"
      this.ahead.add(follower)
    } else {
      follower.state = "behind"
      this.behind.add(follower)
    }
  }

  private leave(follower: Follower): void {
    this.behind.delete(follower)
    this.ahead.delete(follower)
    const peers = this.live.get(follower.tenant)
    if (peers?.delete(follower) && peers.size === 0) this.live.delete(follower.tenant)
  }
}
