/** The WebSocket handshake on `node:http` (RFC 6455, 4.2). */
import { IncomingMessage } from "node:http"
import type { Duplex } from "node:stream"
import type * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import { Effect } from "effect"
import { WebSocketServer } from "ws"
import { messageOf } from "../../base/ErrorMessage.ts"
import { emitted } from "../../base/Time/EventLoop.ts"
import type { ApiError } from "../ApiError.ts"
import { defaults } from "../ConnectionLimits.ts"
import type { Reply } from "../Reply.ts"
import { BodyBudget } from "../Server/BodyBudget.ts"
import { leaveEndToWebSocket } from "../Server/GracefulClose.ts"
import { type ConnectionSet, noHandshake, type Upgrade, upgradeFailed } from "../WebSocket.ts"
import { Connection, Socket } from "./Connection.ts"

/** A request for a WebSocket, from the event `upgrade` of `node:http`. */
export interface Handshake {
  readonly request: IncomingMessage
  readonly socket: Duplex
  /** The bytes that the client has sent after the request. */
  readonly head: Buffer
}

const pending = new WeakMap<IncomingMessage, Handshake>()

/** Stores the parts that only the event has, until a handler of @effect/platform serves the request. */
export const remember = (request: IncomingMessage, socket: Duplex, head: Buffer): void => {
  pending.set(request, { request, socket, head })
}

/** Whether node emits a request by the event `upgrade`. */
export const isUpgrade = (request: IncomingMessage): boolean => Reflect.get(request, "upgrade") === true

const nothing = Buffer.alloc(0)

/**
 * The handshake of a request, or `undefined` if it requests no upgrade. If {@link remember} was not called, the bytes
 * after it are lost; a client must send nothing before the answer (RFC 6455, 4.1).
 */
export const handshakeOf = ({ source }: HttpServerRequest.HttpServerRequest): Handshake | undefined => {
  if (!(source instanceof IncomingMessage)) return undefined
  return (
    pending.get(source) ?? (isUpgrade(source) ? { request: source, socket: source.socket, head: nothing } : undefined)
  )
}

/** 16 bytes in base64 (RFC 6455, 4.2.1). */
const key = /^[+/0-9A-Za-z]{22}==$/

const hasToken = (header: string, token: string): boolean =>
  header.split(",").some(part => part.trim().toLowerCase() === token)

/** Why a handshake fails, or `undefined`. */
export const problemOf = ({ request }: Handshake): string | undefined => {
  const { headers, httpVersion, httpVersionMajor, httpVersionMinor, method } = request
  if (method !== "GET") return `the method must be GET, not ${method}`
  if (httpVersionMajor !== 1 || httpVersionMinor < 1) return `HTTP/1.1 is required, not HTTP/${httpVersion}`
  if (!hasToken(headers.connection ?? "", "upgrade")) return "the Connection header must contain Upgrade"
  if (headers.upgrade?.toLowerCase() !== "websocket") return "the Upgrade header must be websocket"
  const version = headers["sec-websocket-version"]
  if (version !== "13") return `Sec-WebSocket-Version must be 13, not ${version ?? "absent"}`
  if (!key.test(headers["sec-websocket-key"] ?? "")) return "Sec-WebSocket-Key must be 16 bytes in base64"
  return undefined
}

const options = {
  noServer: true,
  clientTracking: false,
  perMessageDeflate: false,
  // One message of a connection per turn of the event loop, so that a burst delays no other connection.
  allowSynchronousEvents: false,
  // `Connection` limits the closing handshake: this timeout would cut off a client that still reads earlier frames.
  closeTimeout: 600_000,
  WebSocket: Socket
} as const

interface Endpoint {
  readonly server: WebSocketServer
  /** The budget of messages that are arriving on a server without one, as that of a host. */
  readonly arriving: BodyBudget
}

const endpoints = new WeakMap<ConnectionSet, Endpoint>()

let refusal: string | undefined

const endpointOf = (connections: ConnectionSet): Endpoint => {
  const known = endpoints.get(connections)
  if (known !== undefined) return known
  const { messageBytes, subprotocol } = connections.settings
  const server = new WebSocketServer({
    ...options,
    maxPayload: messageBytes,
    maxFragments: connections.limits.messageFragments,
    // Without this hook `ws` selects the first subprotocol that is offered.
    ...(subprotocol !== undefined && { handleProtocols: offered => offered.has(subprotocol) && subprotocol })
  })
  // With a listener `ws` does not write its own refusal to the socket.
  server.on("wsClientError", error => {
    refusal = error.message
  })
  const endpoint = { server, arriving: new BodyBudget(defaults.heldBodyBytes, connections.tags) }
  endpoints.set(connections, endpoint)
  return endpoint
}

/** Switches protocols. Returns the failure, in which case nothing was written. */
const switchProtocols = ({ head, request, socket }: Handshake, connections: ConnectionSet): Socket | string => {
  if (!socket.readable || !socket.writable) return "the client went away"
  let made: Socket | undefined
  refusal = undefined
  leaveEndToWebSocket(socket)
  try {
    endpointOf(connections).server.handleUpgrade(request, socket, head, webSocket => {
      made = webSocket as Socket
    })
  } catch (error) {
    return messageOf(error)
  }
  return made ?? refusal ?? "the handshake was not completed"
}

/**
 * Performs the upgrade if the reply of the handler has one. A failure has written nothing, and the request can still
 * be answered.
 */
export const upgrading =
  (handshake: Handshake | undefined) =>
  (reply: Reply): Effect.Effect<Reply, ApiError> =>
    Effect.suspend(() => {
      const failure = reply.upgrade && perform(handshake, reply.upgrade)
      return failure === undefined ? Effect.succeed(reply) : Effect.fail(failure)
    })

const perform = (handshake: Handshake | undefined, { accept, connections }: Upgrade): ApiError | undefined => {
  if (handshake === undefined) return upgradeFailed(noHandshake)
  return accept(handlerOf => {
    const made = switchProtocols(handshake, connections)
    if (typeof made === "string") return upgradeFailed(made)
    const connection = new Connection(made, handshake.socket, connections, endpointOf(connections).arriving)
    connection.open(handlerOf)
    connections.add(connection)
    return undefined
  })
}

/** Waits until a connection is closed. */
export const closed = ({ socket }: Handshake): Effect.Effect<void> => emitted(socket, () => socket.closed, "close")
