/**
 * What the WebSockets of the service have in common.
 */
import { WebSocket } from "ws"

/** Why a connection is closed whose client broke the rules of WebSocket itself: close codes with their reasons. */
export const brokenRules: Readonly<Record<number, string>> = {
  1002: "protocol_error",
  1007: "invalid_utf8",
  1009: "message_too_big"
}

/** A WebSocket that gives a reason where `ws` closes it by itself with a code alone. */
class ClosingSocket extends WebSocket {
  override close(code?: number, data?: string | Buffer): void {
    const reason = data ?? (code === undefined ? undefined : brokenRules[code])
    super.close(code, reason)
  }
}

/**
 * Options of each `WebSocketServer` here. Whoever has a connection ends it when the closing handshake takes too long:
 * the limit of `ws` would cut a client that is still reading what was sent before the close frame.
 */
export const serverOptions = {
  noServer: true,
  clientTracking: false,
  perMessageDeflate: false,
  closeTimeout: 600_000,
  WebSocket: ClosingSocket
} as const
