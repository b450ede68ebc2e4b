import type { Connection } from "../../Http/WebSocket.ts"
import * as GatewayMetrics from "../GatewayMetrics.ts"

/**
 * What goes out to one client. Frames are queued nowhere but in the connection: whoever has more to send than fits
 * waits until there is room.
 */
export class Outbox {
  private waiting: Array<() => void> = []

  constructor(private readonly connection: Connection) {}

  /** Whether there is room for more. */
  get hasRoom(): boolean {
    return this.connection.hasRoom
  }

  /** Sends a frame. The caller has made sure that there is room, or sends no more than a little. */
  send(type: string, data: string | Buffer, onSent?: () => void): void {
    if (!this.connection.isOpen) return
    GatewayMetrics.sent.increment(type)
    this.connection.send(data, onSent)
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

  /** To be called when there is room again. */
  onRoom(): void {
    while (this.waiting.length > 0 && this.hasRoom) this.waiting.shift()!()
  }
}
