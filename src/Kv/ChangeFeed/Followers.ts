import type { Close, Connection, Handler } from "../../Http/WebSocket.ts"
import type { DebugLog } from "../../Observability/DebugLog.ts"
import type { ChangeQuery, HistoryTrimmed } from "../ChangeLog.ts"
import { type FollowQuery, isOfOther } from "./FollowQuery.ts"
import { closes, heartbeatFrame, pageFrame, resetFrame } from "./Frames.ts"
import { Page } from "./Page.ts"

/** A follower to which nothing was sent for so many milliseconds is sent a heartbeat. */
export const heartbeatInterval = 15_000

/** Frames that are read from a follower, which has nothing to say, between two ticks. */
const maxFrames = 100

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
  /** The epoch of the log that the follower knows, if it has said so. */
  readonly epoch: string | undefined
  /** The epoch of what was sent last. */
  seenEpoch: string
  /** Frames that came since the last tick. */
  #received = 0
  private first: Page | undefined

  constructor(
    readonly connection: Connection,
    private readonly followers: Followers,
    query: FollowQuery,
    first: Page
  ) {
    this.first = first
    this.seenEpoch = first.epoch
    this.cursor = query.after
    this.tenant = query.tenant
    this.limit = query.limit
    this.epoch = query.epoch
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
  /** The epoch of the page that led to the shared position. */
  private epoch: string | undefined
  private lastHeartbeat: { readonly lastSeq: number; readonly epoch: string; readonly frame: Buffer } | undefined

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
  handler(connection: Connection, query: FollowQuery, first: Page): Handler {
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
    const isLive = follower.state === "live"
    const lastSeq = isLive ? this.shared : follower.cursor
    const epoch = (isLive ? this.epoch : undefined) ?? follower.seenEpoch
    if (this.lastHeartbeat?.lastSeq !== lastSeq || this.lastHeartbeat.epoch !== epoch) {
      this.lastHeartbeat = { lastSeq, epoch, frame: heartbeatFrame(lastSeq, epoch) }
    }
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
    if (page.epoch !== this.epoch) this.changeEpoch(page)
    if (page.lastSeq < from) return this.goBack(page, now)
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

  /** Closes those for which history is no longer kept: a group, or those that wait for what comes after the position. */
  closeTrimmed(trimmed: HistoryTrimmed, group?: Group): void {
    for (const follower of group?.members ?? this.waiting()) {
      if (isOfOther(follower, trimmed)) this.reset(follower, trimmed)
      else follower.connection.close(closes.trimmed)
    }
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
  private goBack({ epoch, lastSeq }: Page, now: number): void {
    const page = Page.empty(lastSeq, epoch)
    const waiting = this.waiting()
    for (const follower of waiting) {
      this.leave(follower)
      this.deliver(follower, page, now)
    }
    this.shared = lastSeq
    for (const follower of waiting) this.enter(follower)
  }

  /** The log after the position is another one. Those who know the old one are told. */
  private changeEpoch(page: Page): void {
    this.epoch = page.epoch
    for (const follower of this.waiting()) {
      follower.seenEpoch = page.epoch
      if (isOfOther(follower, page)) this.reset(follower, page)
    }
  }

  private reset(
    { connection }: Follower,
    { epoch, lastSeq = 0 }: { readonly epoch: string; readonly lastSeq?: number }
  ): void {
    if (!connection.isOpen) return
    connection.sendFrame(resetFrame(epoch, Math.max(lastSeq, this.endOfLog())))
    connection.close(closes.replaced)
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
    if (isOfOther(follower, page)) return this.reset(follower, page)
    const tells = page.count > 0 || page.lastSeq < follower.cursor
    follower.cursor = page.lastSeq
    follower.seenEpoch = page.epoch
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
    if (!this.atEnd && cursor >= this.endOfLog()) {
      this.shared = cursor
      this.epoch = follower.seenEpoch
    }
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
