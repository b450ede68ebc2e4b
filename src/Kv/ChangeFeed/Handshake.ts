import { Effect, Schema } from "effect"
import { type WebSocket, WebSocketServer } from "ws"
import { serverOptions } from "../../Http/WebSocket/ClosingSocket.ts"
import type { Upgrade } from "../../Http/WebSocket/Upgrade.ts"

/** The request is no WebSocket handshake, or the handshake went wrong. Nothing was written on its socket. */
export class UpgradeFailed extends Schema.TaggedError<UpgradeFailed>()("UpgradeFailed", {
  /** Fit for a client. */
  reason: Schema.String
}) {
  override get message(): string {
    return this.reason
  }
}

/** A follower has nothing to say: what it may send at most, in bytes. */
const maxPayload = 4096

/** 16 bytes in base64 (RFC 6455, 4.2.1). */
const key = /^[+/0-9A-Za-z]{22}==$/

const hasToken = (header: string, token: string): boolean =>
  header.split(",").some(part => part.trim().toLowerCase() === token)

/** What keeps a request from being a WebSocket handshake as RFC 6455 has it, or `undefined`. */
export const problemOf = ({ request }: Upgrade): string | undefined => {
  const { headers, httpVersionMajor, httpVersionMinor, method } = request
  if (method !== "GET") return `the method must be GET, not ${method}`
  if (httpVersionMajor !== 1 || httpVersionMinor < 1) return `HTTP/1.1 is required, not HTTP/${request.httpVersion}`
  if (!hasToken(headers.connection ?? "", "upgrade")) return "the Connection header must contain Upgrade"
  if (headers.upgrade?.toLowerCase() !== "websocket") return "the Upgrade header must be websocket"
  const version = headers["sec-websocket-version"]
  if (version !== "13") return `Sec-WebSocket-Version must be 13, not ${version ?? "absent"}`
  if (!key.test(headers["sec-websocket-key"] ?? "")) return "Sec-WebSocket-Key must be 16 bytes in base64"
  return undefined
}

/** Makes WebSockets of requests. */
export class Handshake {
  private readonly server = new WebSocketServer({
    ...serverOptions,
    maxPayload
  })
  private refusal: string | undefined

  constructor() {
    // With a listener `ws` leaves the socket alone instead of writing a refusal of its own.
    this.server.on("wsClientError", error => {
      this.refusal = error.message
    })
  }

  /** Switches protocols. It is done when this returns, or the socket is as it was. */
  shake({ head, request, socket }: Upgrade): Effect.Effect<WebSocket, UpgradeFailed> {
    return Effect.try({
      try: () => {
        if (!socket.readable || !socket.writable) throw new Error("the client went away")
        let made: WebSocket | undefined
        this.refusal = undefined
        this.server.handleUpgrade(request, socket, head, webSocket => {
          made = webSocket
        })
        if (made === undefined) throw new Error(this.refusal ?? "the handshake was not completed")
        return made
      },
      catch: error => new UpgradeFailed({ reason: error instanceof Error ? error.message : String(error) })
    })
  }
}
