import type { Duplex } from "node:stream"
import { WebSocket } from "ws"
import * as ConnectionMetrics from "../../Http/ConnectionMetrics.ts"
import { accountOf, Reading } from "../../Http/Server/Unsent.ts"
import type { DebugLog } from "../../Observability/DebugLog.ts"
import type { ChangeQuery } from "../ChangeLog.ts"
import { heartbeatFrame, pageFrame } from "./Frame.ts"
import { Page } from "./Page.ts"
import { closeCodes, type Group, timing, type Watcher } from "./Watcher.ts"

const ignore = (): void => {}

/** Pings without any sign of life, after which a follower is given up. */
const unansweredPings = 2

/** Bytes of a frame that counts once for all who are sent it; to look after smaller ones would cost more than they do. */
const sharedFrame = 4096

/** Frames from a follower that are read between two ticks. */
const mostHeard = 100

const tooSlow = "Too slow; resume after lastSeq"

/**
 * All WebSockets that follow the log, without effects: time (monotonic milliseconds) is passed in, and pages are brought.
 *
 * Those at the log's end share one position and are found by tenant, so that a commit costs as many steps as it has
 * readers. A follower whose unsent bytes are over the bound gets nothing until it has drained.
 */
export class Watchers {
  private readonly all = new Set<Watcher>()
  private readonly live = new Map<string, Set<Watcher>>()
  private readonly ahead = new Set<Watcher>()
  private readonly behind = new Set<Watcher>()
  private common = 0
  private now = 0

  /**
   * @param unsentBytes the bound of unsent bytes for one follower
   * @param endOfLog the furthest `seq` known
   * @param wake called when there is something to do between pages
   */
  constructor(
    private readonly unsentBytes: number,
    private readonly endOfLog: () => number,
    private readonly wake: () => void,
    private readonly debug?: DebugLog
  ) {}

  /** Where those stand who have all that there is. */
  get position(): number {
    return this.common
  }

  /** Whether anybody waits for what comes after the position. */
  get atEnd(): boolean {
    return this.live.size > 0 || this.ahead.size > 0
  }

  /** Whether anybody has yet to reach the position. */
  get lagging(): boolean {
    return this.behind.size > 0
  }

  /** The position of the one furthest behind, of those that are not on their way out; `undefined` without any. */
  get furthestBehind(): number | undefined {
    let least: number | undefined
    for (const { phase, cursor } of this.all) {
      if (phase === "closing") continue
      const position = phase === "live" ? this.common : cursor
      if (least === undefined || position < least) least = position
    }
    return least
  }

  /** Takes in a WebSocket over a wire, with the first page for it. `onClose` is called once, when it is closed. */
  add(socket: WebSocket, wire: Duplex, query: ChangeQuery, first: Page, now: number, onClose: () => void): void {
    const account = accountOf(wire)
    const watcher: Watcher = {
      socket,
      wire,
      account,
      tenant: query.tenant,
      limit: query.limit,
      written: () => this.drained(watcher),
      phase: "behind",
      cursor: query.after,
      lastSent: now,
      since: now,
      reading: new Reading(wire),
      isSlow: false,
      nextPing: now + timing.heartbeat,
      unanswered: 0,
      heard: 0
    }
    if (account !== undefined) account.end = () => this.close(watcher, closeCodes.slow, tooSlow, this.now)
    const alive = () => {
      watcher.unanswered = 0
      // A follower has nothing to say. One that talks all the time is not read until the next tick.
      if (++watcher.heard > mostHeard) socket.pause()
    }
    this.all.add(watcher)
    ConnectionMetrics.webSocketOpened()
    socket.on("message", alive).on("ping", alive).on("pong", alive)
    // What went wrong shows in the close code; the ticker sees to it that the connection ends.
    socket.on("error", ignore)
    socket.on("close", () => {
      this.leave(watcher)
      this.all.delete(watcher)
      ConnectionMetrics.webSocketClosed()
      onClose()
    })
    this.deliver(watcher, first, now)
    this.enter(watcher)
    this.wake()
  }

  /** Those who have yet to reach the position, in at most so many groups; others come first the next time. */
  groups(most: number): ReadonlyArray<Group> {
    const groups = new Map<string, Group>()
    for (const watcher of this.behind) {
      const { cursor, limit, tenant } = watcher
      const key = `${cursor} ${limit} ${tenant}`
      const group = groups.get(key)
      if (group !== undefined) group.members.push(watcher)
      else if (groups.size < most) groups.set(key, { query: { after: cursor, limit, tenant }, members: [watcher] })
    }
    return [...groups.values()]
  }

  /** Gives a group the page that it wants. */
  advanceGroup({ members, query }: Group, page: Page, now: number): void {
    for (const watcher of members) {
      if (watcher.phase !== "behind" || watcher.cursor !== query.after) continue
      this.leave(watcher)
      this.deliver(watcher, page, now)
      this.enter(watcher)
    }
  }

  /** Gives those at the end what an unfiltered page after `from` has for them, if they still stand there. */
  advance(page: Page, from: number, now: number): void {
    if (from !== this.common) return
    if (page.lastSeq < from) {
      this.goBack(page.lastSeq, now)
      return
    }
    this.common = page.lastSeq
    for (const tenant of page.count === 0 ? [] : new Set(["", ...page.tenants])) {
      const parts = new Map<number, ReadonlyArray<Page>>()
      for (const watcher of this.live.get(tenant) ?? []) {
        const { limit } = watcher
        if (!parts.has(limit)) parts.set(limit, page.split({ after: from, limit, tenant }))
        this.deliverAll(watcher, parts.get(limit)!, now)
      }
    }
    for (const watcher of this.ahead) {
      const { cursor: after, limit, tenant } = watcher
      if (after <= this.common) this.deliverAll(watcher, page.split({ after, limit, tenant }), now)
    }
  }

  /** Heartbeats, pings and deadlines; to be called about once a second. */
  tick(now: number): void {
    this.now = now
    const heartbeats = new Map<number, Buffer>()
    const heartbeat = (lastSeq: number): Buffer => {
      const known = heartbeats.get(lastSeq) ?? heartbeatFrame(lastSeq)
      heartbeats.set(lastSeq, known)
      return known
    }
    for (const watcher of this.all) {
      const { isSlow, phase, socket, wire } = watcher
      if (watcher.heard > mostHeard && phase !== "closing") socket.resume()
      watcher.heard = 0
      if ((phase === "blocked" || isSlow) && watcher.reading.look()) watcher.since = now
      const { since } = watcher
      if (phase === "closing") {
        if (now - since >= (isSlow ? timing.drain : timing.close)) socket.terminate()
      } else if (socket.readyState !== WebSocket.OPEN) {
        this.startClosing(watcher, now)
      } else if (phase === "blocked") {
        if (now - since >= timing.drain) this.close(watcher, closeCodes.slow, tooSlow, now)
      } else {
        if (watcher.unanswered > 0) {
          // Its answer stands behind all that it has yet to read: as long as it reads, it is alive.
          if (watcher.reading.look()) watcher.unanswered = 1
          watcher.account?.watch()
        }
        if (now >= watcher.nextPing) {
          if (watcher.unanswered >= unansweredPings) {
            socket.terminate()
            continue
          }
          watcher.unanswered++
          watcher.reading.look()
          watcher.nextPing = now + timing.heartbeat
          socket.ping()
        }
        // Answers to its pings lie there too.
        if (wire.writableLength > this.unsentBytes) this.block(watcher, now)
        else if (now - watcher.lastSent >= timing.heartbeat) {
          watcher.lastSent = now
          wire.write(heartbeat(phase === "live" ? this.common : watcher.cursor))
        }
      }
    }
  }

  closeGroup(group: Group, code: number, reason: string, now: number): void {
    for (const watcher of group.members) this.close(watcher, code, reason, now)
  }

  /** Closes those who wait for what comes after the position. */
  closeAtEnd(code: number, reason: string, now: number): void {
    const waiting = [...this.all].filter(({ phase }) => phase === "live" || phase === "ahead")
    for (const watcher of waiting) this.close(watcher, code, reason, now)
  }

  /** Has those who wait for what comes after the position read on by themselves. */
  scatter(): void {
    for (const watcher of [...this.all]) {
      if (watcher.phase !== "live" && watcher.phase !== "ahead") continue
      if (watcher.phase === "live") watcher.cursor = this.common
      this.leave(watcher)
      watcher.phase = "behind"
      this.behind.add(watcher)
    }
  }

  closeAll(code: number, reason: string, now: number): void {
    for (const watcher of this.all) this.close(watcher, code, reason, now)
  }

  /** Ends all connections at once. */
  terminateAll(): void {
    for (const { socket } of this.all) socket.terminate()
  }

  /** The log ends before the position. Its readers learn where, and go on from there. */
  private goBack(lastSeq: number, now: number): void {
    const page = Page.empty(lastSeq)
    const waiting = [...this.all].filter(({ phase }) => phase === "live" || phase === "ahead")
    for (const watcher of waiting) {
      this.leave(watcher)
      this.deliver(watcher, page, now)
    }
    this.common = lastSeq
    for (const watcher of waiting) this.enter(watcher)
  }

  /** Delivers pages as long as the follower takes them, and puts it where it then stands. */
  private deliverAll(watcher: Watcher, pages: ReadonlyArray<Page>, now: number): void {
    for (const page of pages) {
      this.deliver(watcher, page, now)
      if (watcher.phase === "blocked" || watcher.phase === "closing") return
    }
    if (watcher.phase === "live" && watcher.cursor === this.common) return
    this.leave(watcher)
    this.enter(watcher)
  }

  /** Sends a page, unless it tells nothing. The follower may be blocked by it. */
  private deliver(watcher: Watcher, page: Page, now: number): void {
    const { socket, wire } = watcher
    if (watcher.phase === "closing") return
    if (socket.readyState !== WebSocket.OPEN) {
      this.startClosing(watcher, now)
      return
    }
    const tells = page.count > 0 || page.lastSeq < watcher.cursor
    watcher.cursor = page.lastSeq
    if (!tells) return
    watcher.lastSent = now
    this.debug?.("Sending a frame to a follower", {
      changes: page.count,
      lastSeq: page.lastSeq,
      tenant: watcher.tenant
    })
    const frame = pageFrame(page)
    wire.write(frame, watcher.written)
    const unsent = wire.writableLength
    if (unsent === 0) return
    if (frame.length >= sharedFrame) watcher.account?.share(frame)
    else watcher.account?.settle()
    if (unsent > this.unsentBytes) this.block(watcher, now)
  }

  private block(watcher: Watcher, now: number): void {
    // It may have been closed just now, to make room for others.
    if (watcher.phase === "closing") return
    this.leave(watcher)
    watcher.phase = "blocked"
    watcher.since = now
    watcher.reading.look()
  }

  /** Called whenever something sent has left for the network. */
  private drained(watcher: Watcher): void {
    const { account } = watcher
    if (account !== undefined && account.bytes > 0) account.unshareSent()
    if (watcher.phase !== "blocked" || watcher.wire.writableLength > this.unsentBytes) return
    watcher.unanswered = 0
    // Whatever happened to the log meanwhile, a page read from the cursor tells it.
    watcher.phase = "behind"
    this.behind.add(watcher)
    this.wake()
  }

  private enter(watcher: Watcher): void {
    const { cursor, phase, tenant } = watcher
    if (phase === "blocked" || phase === "closing") return
    if (!this.atEnd && cursor >= this.endOfLog()) this.common = cursor
    if (this.atEnd ? cursor === this.common : cursor >= this.endOfLog()) {
      watcher.phase = "live"
      const peers = this.live.get(tenant)
      if (peers === undefined) this.live.set(tenant, new Set([watcher]))
      else peers.add(watcher)
    } else if (this.atEnd && cursor > this.common) {
      watcher.phase = "ahead"
      this.ahead.add(watcher)
    } else {
      watcher.phase = "behind"
      this.behind.add(watcher)
    }
  }

  private leave(watcher: Watcher): void {
    this.behind.delete(watcher)
    this.ahead.delete(watcher)
    const peers = this.live.get(watcher.tenant)
    if (peers?.delete(watcher) && peers.size === 0) this.live.delete(watcher.tenant)
  }

  private close(watcher: Watcher, code: number, reason: string, now: number): void {
    if (watcher.phase === "closing") return
    watcher.isSlow = code === closeCodes.slow || watcher.phase === "blocked"
    this.startClosing(watcher, now)
    watcher.socket.close(code, reason)
  }

  private startClosing(watcher: Watcher, now: number): void {
    this.leave(watcher)
    watcher.phase = "closing"
    watcher.since = now
    watcher.reading.look()
  }
}
