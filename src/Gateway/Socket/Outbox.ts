import type { Duplex } from "node:stream"
import { WebSocket } from "ws"
import { accountOf, Reading } from "../../Http/Server/Unsent.ts"
import * as GatewayMetrics from "../GatewayMetrics.ts"

const text = { binary: false }

/**
 * What goes out to one client. Nothing is queued here but in the socket itself: whoever has more to send than fits
 * waits until there is room.
 */
export class Outbox {
  private waiting: Array<() => void> = []
  private blockedAt: number | undefined
  private readonly reading: Reading

  /**
   * @param wire what the WebSocket runs over
   * @param unsentBytes the bound of what may lie unsent
   * @param now monotonic milliseconds
   * @param onBlocked called when the bound is reached, and when there is room again
   */
  constructor(
    private readonly socket: WebSocket,
    private readonly wire: Duplex,
    private readonly unsentBytes: number,
    private readonly now: () => number,
    private readonly onBlocked: (isBlocked: boolean) => void
  ) {
    this.reading = new Reading(wire)
  }

  /** Whether there is room for more. */
  get hasRoom(): boolean {
    return this.blockedAt === undefined && this.isOpen
  }

  get isOpen(): boolean {
    return this.socket.readyState === WebSocket.OPEN
  }

  /** Since when there has been no room and nothing was taken, in monotonic milliseconds. */
  get blockedSince(): number | undefined {
    return this.blockedAt
  }

  /** Looks whether the client has read something since the last look, and tells. */
  look(now: number): boolean {
    const hasRead = this.reading.look()
    if (hasRead && this.blockedAt !== undefined) this.blockedAt = now
    return hasRead
  }

  /** Hands a frame to the socket; whoever calls has made sure that there is room, or sends no more than a little. */
  send(type: string, data: string | Buffer, onSent?: () => void): void {
    if (!this.isOpen) return
    GatewayMetrics.sent.increment(type)
    this.socket.send(data, text, () => {
      this.drained()
      onSent?.()
    })
    const unsent = this.socket.bufferedAmount
    if (unsent === 0) return
    accountOf(this.wire)?.settle()
    // The connection may have been closed just now, to make room for others.
    if (this.blockedAt !== undefined || unsent <= this.unsentBytes || !this.isOpen) return
    this.blockedAt = this.now()
    this.onBlocked(true)
  }

  /** Calls back once there is room; never where the connection ends before. Returns how to stop waiting. */
  whenRoom(callback: () => void): () => void {
    if (this.hasRoom) {
      callback()
      return () => {}
    }
    this.waiting.push(callback)
    return () => {
      this.waiting = this.waiting.filter(other => other !== callback)
    }
  }

  private drained(): void {
    const account = accountOf(this.wire)
    if (account !== undefined && account.bytes > 0) account.settle()
    if (this.blockedAt === undefined || this.socket.bufferedAmount > this.unsentBytes) return
    this.blockedAt = undefined
    this.onBlocked(false)
    while (this.waiting.length > 0 && this.hasRoom) this.waiting.shift()!()
  }
}
