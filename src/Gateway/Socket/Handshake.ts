/**
 * From an HTTP request to a WebSocket: credentials, subprotocols and refusals.
 */
import type { IncomingMessage } from "node:http"
import type { Duplex } from "node:stream"
import { Effect, Either, Option, Redacted } from "effect"
import { type WebSocket, WebSocketServer } from "ws"
import { authorizationOf } from "../../Http/Authorization.ts"
import * as NodeServerRaw from "../../Http/Server/NodeServerRaw.ts"
import { serverOptions } from "../../Http/WebSocket/ClosingSocket.ts"
import type { Upgrade } from "../../Http/WebSocket/Upgrade.ts"
import { UpgradeFailed } from "../../Kv/ChangeFeed/Handshake.ts"
import { frameBytes } from "../Protocol/Limits.ts"

/** The subprotocol that is spoken here; a client that names others must name it too. */
export const subprotocol = "causeway.v1"

/** In front of a token that a browser, which cannot set headers, sends as a subprotocol. */
const bearerPrefix = "bearer."

const bearer = /^bearer +([^\s]+) *$/i

/** A refusal as an HTTP status with `{error}`. */
export interface Refusal {
  readonly status: 401 | 403 | 500 | 503
  readonly error: string
}

const subprotocolsOf = ({ headers }: IncomingMessage): ReadonlyArray<string> =>
  (headers["sec-websocket-protocol"] ?? "")
    .split(",")
    .map(part => part.trim())
    .filter(part => part !== "")

/**
 * The one token of a request. Two of them, even the same one twice, are refused: what checks one of them on the way,
 * such as a proxy, must not be led to look at another one than is used here.
 */
export const tokenOf = (request: IncomingMessage): Either.Either<Option.Option<Redacted.Redacted>, Refusal> => {
  const refuse = (error: string): Either.Either<never, Refusal> => Either.left({ status: 401, error })
  const offered = subprotocolsOf(request)
  const named = offered.filter(part => part.startsWith(bearerPrefix)).map(part => part.slice(bearerPrefix.length))
  if (named.length > 0 && !offered.includes(subprotocol)) {
    return refuse(`A bearer subprotocol comes together with ${subprotocol}`)
  }
  const isHeaded = request.headers.authorization !== undefined
  if (!isHeaded && named.length === 0) return Either.right(Option.none())
  const authorization = authorizationOf(request)
  if (isHeaded && authorization === undefined) return refuse("The Authorization header is repeated")
  const headed = authorization === undefined ? undefined : bearer.exec(authorization)?.[1]
  if (authorization !== undefined && headed === undefined) {
    return refuse("The Authorization header must be a bearer token")
  }
  const tokens = headed === undefined ? named : [headed, ...named]
  return tokens.length === 1 && tokens[0] !== ""
    ? Either.right(Option.some(Redacted.make(tokens[0]!)))
    : refuse("There must be one bearer token, and no more")
}

/** Whether a client that names subprotocols names the one that is spoken here. */
export const speaks = (request: IncomingMessage): boolean => {
  const offered = subprotocolsOf(request)
  return offered.length === 0 || offered.includes(subprotocol)
}

/** Answers a request that becomes no WebSocket, and ends its connection. */
export const refuse = (socket: Duplex, { status, error }: Refusal): void => {
  if (!socket.writable) {
    socket.destroy()
    return
  }
  const [statusLine, ...rest] = NodeServerRaw.answer(status, error).split("\r\n")
  const challenge = status === 401 ? ["www-authenticate: Bearer"] : []
  socket.end([statusLine, ...challenge, ...rest].join("\r\n"))
}

/** Makes WebSockets of requests. */
export class Handshake {
  private readonly server = new WebSocketServer({
    ...serverOptions,
    maxPayload: frameBytes,
    handleProtocols: offered => (offered.has(subprotocol) ? subprotocol : false)
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
