/**
 * The end of a connection: not before its client has had the chance to read the answer, and in bounded time. Where node
 * has no `ServerResponse`, the answer is written on the socket itself.
 */
import { type IncomingMessage, STATUS_CODES } from "node:http"
import type { Socket } from "node:net"
import type { Duplex } from "node:stream"
import { bodyOf } from "../ApiError.ts"

/** In milliseconds. */
export interface Bounds {
  /** The interval of checks of a connection that is still read from. */
  readonly linger: number
  /** How long a half-closed connection is served. */
  readonly halfOpen: number
}

/** Checks in a row without a byte, and checks in all, after which a connection is no longer read from. */
const checks = { silent: 5, all: 30 }

/** Bytes that are read and discarded after an answer. */
const maxBytes = 64 * 1024 * 1024

/**
 * Lets a connection end as its client needs it.
 *
 * A half-closed connection gets the answers to what it has sent, but within a time limit: the client may be gone
 * altogether, which only a write to it would tell.
 *
 * To close a connection while unread bytes arrive resets it, and the client may lose the answer that was sent before.
 * So while the body of a request is still arriving, which `receiving` tells, the server ends its half, reads on and
 * discards, within bounds.
 */
export const closeGracefully = (
  socket: Socket,
  { halfOpen, linger }: Bounds,
  receiving: () => IncomingMessage | undefined
): void => {
  socket.once("end", () => destroyWithin(socket, halfOpen))
  const destroySoon = socket.destroySoon.bind(socket)
  socket.destroySoon = () => {
    const request = receiving()
    if (request === undefined || socket.destroyed) return destroySoon()
    socket.end()
    request.once("end", destroySoon)
    discard(socket, linger)
  }
}

/**
 * Lets the connection of an upgrade end whose server's half has ended, as where the handshake was refused: node no longer
 * knows of it, and its client may keep the other half open. What still comes is discarded where nobody reads it.
 */
export const closeUpgraded = (socket: Duplex, { halfOpen }: Bounds): void => {
  socket.once("finish", () => {
    if (socket.readableFlowing === null) socket.resume()
    destroyWithin(socket, halfOpen)
  })
}

/** Destroys a connection that is not closed by then. */
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
    ...(status === 503 ? ["retry-after: 1"] : []),
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
