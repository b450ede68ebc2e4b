import { WebSocket } from "ws"
import * as GatewayMetrics from "../../Observability/GatewayMetrics.ts"

const text = { binary: false }

/**
 * What goes out to one client. Nothing is queued here but in the socket itself: whoever has more to send than fits
 * waits until there is room.
 */
export class Outbox {
  private waiting: Array<() => void> = []
  private blockedAt: number | undefined

  /**
   * @param unsentBytes the bound of what may lie unsent
   * @param now monotonic milliseconds
   * @param onBlocked called when the bound is reached, and when there is room again
   */
  constructor(
    private readonly socket: WebSocket,
    private readonly unsentBytes: number,
    private readonly now: () => number,
    private readonly onBlocked: (isBlocked: boolean) => void
  ) {}

  /** Whether there is room for more. */
  get hasRoom(): boolean {
    return this.blockedAt === undefined && this.isOpen
  }

  get isOpen(): boolean {
    return this.socket.readyState === WebSocket.OPEN
  }

  /** Since when there has been no room, in monotonic milliseconds. */
  get blockedSince(): number | undefined {
    return this.blockedAt
  }

  /** Hands a frame to the socket; whoever calls has made sure that there is room, or sends no more than a little. */
  send(type: string, data: string | Buffer, onSent?: () => void): void {
    if (!this.isOpen) return
    GatewayMetrics.sent.increment(type)
    this.socket.send(data, text, () => {
      this.drained()
      onSent?.()
    })
    if (this.blockedAt !== undefined || this.socket.bufferedAmount <= this.unsentBytes) return
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
    if (this.blockedAt === undefined || this.socket.bufferedAmount > this.unsentBytes) return
    this.blockedAt = undefined
    this.onBlocked(false)
    while (this.waiting.length > 0 && this.hasRoom) this.waiting.shift()!()
  }
}
