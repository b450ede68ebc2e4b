/** The WebSockets that follow the log, without effects. */
import type { DebugLog } from "../../base/Observability/DebugLog.ts"
import type { Close } from "../../Http/WebSocket.ts"
import type { ChangeQuery, HistoryTrimmed } from "../ChangeLog.ts"
import { closes, type Follower, type FollowerOwner, heartbeatFrame, resetFrame } from "./Follower.ts"
import { ReadersByPart } from "./LogWaiters.ts"
import { isOfOther, keyOf, Page } from "./Pages.ts"

/** Followers that need the same page. */
export interface Group {
  readonly query: ChangeQuery
  readonly members: Array<Follower>
}

/**
 * All WebSockets that follow the log, without effects: the reader of the log passes in the pages.
 *
 * Followers at the end of the log share one position and are indexed by tenant, so that the cost of a commit is
 * proportional to the number of its readers.
 */
export class FollowerSet implements FollowerOwner {
  private readonly all = new Set<Follower>()
  private readonly live = new ReadersByPart<Follower>()
  private readonly ahead = new Set<Follower>()
  private readonly behind = new Set<Follower>()
  /** The position of followers that have received everything. */
  shared = 0
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

  /** Whether any follower waits at the position. */
  get atEnd(): boolean {
    return this.live.size > 0 || this.ahead.size > 0
  }

  /** Whether any follower is before the position. */
  get lagging(): boolean {
    return this.behind.size > 0
  }

  /** The lowest position of an open connection; `undefined` if there is none. */
  get lowest(): number | undefined {
    let lowest: number | undefined
    for (const { connection, cursor, state } of this.all) {
      if (!connection.isOpen) continue
      const position = state === "live" ? this.shared : cursor
      if (lowest === undefined || position < lowest) lowest = position
    }
    return lowest
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

  /** Sends nothing more to a follower. */
  suspend(follower: Follower): void {
    this.leave(follower)
    follower.state = "suspended"
  }

  /** Resumes a follower from its cursor. The next page shows what happened to the log in the meantime. */
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

  /** Followers before the position, in at most `max` groups. Other groups follow with the next call. */
  groups(most: number): ReadonlyArray<Group> {
    const groups = new Map<string, Group>()
    for (const follower of this.behind) {
      const query = { ...follower.query, after: follower.cursor }
      const key = keyOf(query)
      const group = groups.get(key)
      if (group !== undefined) group.members.push(follower)
      else if (groups.size < most) groups.set(key, { query, members: [follower] })
    }
    return [...groups.values()]
  }

  /** Delivers to a group the page that it needs. */
  advanceGroup({ members, query }: Group, page: Page): void {
    const now = this.now()
    for (const follower of members) {
      if (follower.state !== "behind" || follower.cursor !== query.after) continue
      this.leave(follower)
      this.deliver(follower, page, now)
      this.enter(follower)
    }
  }

  /** Delivers an unfiltered page after `from` to the followers at the end, if the position is still `from`. */
  advance(page: Page, from: number): void {
    if (from !== this.shared) return
    const now = this.now()
    if (page.epoch !== this.epoch) this.changeEpoch(page)
    if (page.lastSeq < from) return this.goBack(page, now)
    this.shared = page.lastSeq
    for (const { readers } of this.live.groupsOf(page)) {
      const parts = new Map<number | string, ReadonlyArray<Page>>()
      for (const follower of readers) {
        const { query } = follower
        // Followers of a tenant differ in the limit only.
        const key = query.namespace === undefined ? query.limit : keyOf({ ...query, after: from })
        let own = parts.get(key)
        if (own === undefined) {
          own = page.split({ ...query, after: from })
          parts.set(key, own)
        }
        this.deliverAll(follower, own, now)
      }
    }
    for (const follower of this.ahead) {
      const { cursor: after, query } = follower
      if (after <= this.shared) this.deliverAll(follower, page.split({ ...query, after }), now)
    }
  }

  closeGroup({ members }: Group, close: Close): void {
    for (const { connection } of members) connection.close(close)
  }

  /** Closes followers whose history was trimmed: a group, or those that wait at the position. */
  closeTrimmed(trimmed: HistoryTrimmed, group?: Group): void {
    for (const follower of group?.members ?? this.waiting()) {
      if (isOfOther(follower.query, trimmed)) this.reset(follower, trimmed)
      else follower.connection.close(closes.trimmed)
    }
  }

  /** Abandons the shared position: each of its followers is read for separately. */
  fallBehind(): void {
    for (const follower of this.waiting()) {
      if (follower.state === "live") follower.cursor = this.shared
      this.leave(follower)
      follower.state = "behind"
      this.behind.add(follower)
    }
  }

  private waiting(): ReadonlyArray<Follower> {
    return [...this.all].filter(({ state }) => state === "live" || state === "ahead")
  }

  /** The log was reset and ends before the position. Its followers receive the new end, and continue from there. */
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

  /** The log after the position has another epoch. Followers that named the old one are reset. */
  private changeEpoch(page: Page): void {
    this.epoch = page.epoch
    for (const follower of this.waiting()) {
      follower.seenEpoch = page.epoch
      if (isOfOther(follower.query, page)) this.reset(follower, page)
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

  /** Delivers pages until the follower is suspended, and updates its state. */
  private deliverAll(follower: Follower, pages: ReadonlyArray<Page>, now: number): void {
    for (const page of pages) {
      this.deliver(follower, page, now)
      if (follower.state === "suspended") return
    }
    if (follower.state === "live" && follower.cursor === this.shared) return
    this.leave(follower)
    this.enter(follower)
  }

  /** Sends a page unless it has nothing new. The follower may be suspended by it. */
  private deliver(follower: Follower, page: Page, now: number): void {
    const { connection } = follower
    if (!connection.isOpen) return this.suspend(follower)
    if (isOfOther(follower.query, page)) return this.reset(follower, page)
    const hasNews = page.count > 0 || page.lastSeq < follower.cursor
    follower.cursor = page.lastSeq
    follower.seenEpoch = page.epoch
    if (!hasNews) return
    follower.lastSent = now
    this.debug?.("Sending a frame to a follower", {
      changes: page.count,
      lastSeq: page.lastSeq,
      tenant: follower.query.tenant
    })
    connection.sendFrame(page.frame)
  }

  private enter(follower: Follower): void {
    const { cursor, query, state } = follower
    if (state === "suspended") return
    if (!this.atEnd && cursor >= this.endOfLog()) {
      this.shared = cursor
      this.epoch = follower.seenEpoch
    }
    // A follower at the same position of another log is read for separately, and so learns of the reset.
    const isOfLog = this.epoch === undefined || !isOfOther(query, { epoch: this.epoch })
    if (this.atEnd ? cursor === this.shared && isOfLog : cursor >= this.endOfLog()) {
      follower.state = "live"
      this.live.add(follower)
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
    this.live.delete(follower)
  }
}
