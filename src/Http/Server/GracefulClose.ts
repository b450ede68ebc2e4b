/**
 * The end of a connection: not before its client had a chance to read the answer, and in bounded time. If node
 * has no `ServerResponse`, the answer is written on the socket itself.
 */
import { type IncomingMessage, type ServerResponse, STATUS_CODES } from "node:http"
import { Socket } from "node:net"
import type { Duplex } from "node:stream"
import { bodyOf, ServiceUnavailable } from "../ApiError.ts"

/** In milliseconds. */
export interface Bounds {
  /** The interval of checks of a connection that is still being read. */
  readonly linger: number
  /** How long a half-closed connection is served. */
  readonly halfOpen: number
}

/**
 * How the connections of a server end. They share it and the functions below: closures for each connection would cost
 * an idle one a tenth of its memory.
 */
export interface Ending extends Bounds {
  /** The current request of a connection, while its body is still arriving. */
  readonly receiving: (socket: Socket) => IncomingMessage | undefined
}

const ending = Symbol("causeway/Ending")

interface Known extends Duplex {
  [ending]?: Bounds & Partial<Ending>
}

/** Consecutive checks without a byte, and total checks, after which a connection is no longer read. */
const checks = { silent: 5, all: 30 }

/** Bytes that are read and discarded after an answer. */
const maxBytes = 64 * 1024 * 1024

/**
 * Closes a connection so that its client can read the answers.
 *
 * A half-closed connection gets the answers to its requests, but within a timeout: the client may have disconnected
 * completely, which only a write to it would show.
 *
 * Closing a connection while unread bytes arrive resets it, and the client may lose the answer that was sent before.
 * So while the body of a request is still arriving (`receiving`), the server ends its half, continues to read and
 * discards, within bounds.
 */
export const closeGracefully = (socket: Known & Socket, how: Ending): void => {
  socket[ending] = how
  socket.on("end", closeSoon)
  socket.destroySoon = destroySoon
}

function closeSoon(this: Known): void {
  const how = this[ending]
  if (how !== undefined) destroyWithin(this, how.halfOpen)
}

function destroySoon(this: Known & Socket): void {
  const how = this[ending]
  const request = how?.receiving?.(this)
  if (how === undefined || request === undefined || this.destroyed) return Socket.prototype.destroySoon.call(this)
  this.end()
  request.once("end", () => Socket.prototype.destroySoon.call(this))
  discard(this, how.linger)
}

/** Closes a connection after its current answer. */
export const closeAfter = (answer: ServerResponse, socket: Socket): void => {
  answer.shouldKeepAlive = false
  // Its headers may have said keep-alive.
  if (answer.headersSent) answer.once("finish", () => socket.destroySoon())
}

/**
 * Closes the connection of an upgrade after the server's half has ended, as after a refused handshake: node no longer
 * tracks it, and its client may keep the other half open. Later bytes are discarded if nothing reads them.
 */
export const closeUpgraded = (socket: Known, bounds: Bounds): void => {
  socket[ending] ??= bounds
  socket.on("finish", closeFinished)
}

function closeFinished(this: Known): void {
  if (this.readableFlowing === null) this.resume()
  closeSoon.call(this)
}

/** To be called when a connection becomes a WebSocket, which ends its half itself once the client has ended its own. */
export const leaveEndToWebSocket = (socket: Duplex): void => {
  socket.off("end", closeSoon)
}

/** Destroys a connection that is not closed within this time. */
export const destroyWithin = (socket: Duplex, millis: number): void => {
  if (socket.destroyed) return
  const deadline = setTimeout(() => socket.destroy(), millis)
  deadline.unref()
  socket.once("close", () => clearTimeout(deadline))
}

const discard = (socket: Socket, interval: number): void => {
  const begun = socket.bytesRead
  let seen = begun
  let silent = 0
  let all = 0
  const timer = setInterval(() => {
    const { bytesRead } = socket
    silent = bytesRead === seen ? silent + 1 : 0
    seen = bytesRead
    if (silent >= checks.silent || ++all >= checks.all || seen - begun > maxBytes) socket.destroy()
  }, interval)
  timer.unref()
  socket.once("close", () => clearInterval(timer))
}

/** An HTTP/1.1 response with a JSON error, after which the connection is closed. */
const response = (status: number, error: string): string => {
  const body = bodyOf(error)
  return [
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "Error"}`,
    "content-type: application/json",
    `content-length: ${Buffer.byteLength(body)}`,
    ...(status === 503
      ? Object.entries(ServiceUnavailable.retryAfter()).map(([name, value]) => `${name}: ${value}`)
      : []),
    "connection: close",
    "",
    body
  ].join("\r\n")
}

/** Responds with an error and closes the connection. */
export const refuse = (socket: Duplex, status: number, error: string): void => {
  if (socket.writable) socket.end(response(status, error))
  else socket.destroy()
}

/** The response to bytes that node's parser rejects. */
export const problemOf = (code: string | undefined): { readonly status: number; readonly error: string } => {
  switch (code) {
    case "HPE_HEADER_OVERFLOW":
      return { status: 431, error: "The request line and headers are too large" }
    case "HPE_CHUNK_EXTENSIONS_OVERFLOW":
      return { status: 413, error: "The chunk extensions are too large" }
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return { status: 408, error: "The request did not arrive in time" }
    default:
      return { status: 400, error: "The request is not valid HTTP/1.1" }
  }
}
