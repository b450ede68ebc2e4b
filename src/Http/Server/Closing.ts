/**
 * How a connection ends: not before its client has had the chance to read the answer, and in bounded time.
 */
import type { IncomingMessage } from "node:http"
import type { Socket } from "node:net"

/** Bounds of a connection that is about to end; times in milliseconds. */
export interface Bounds {
  /** How often a connection that is still read from is looked at. */
  readonly linger: number
  /** How long a client that sends no more, but may still read, is served. */
  readonly halfOpen: number
}

/** Looks in a row without a byte, and looks in all, after which a connection is read from no longer. */
const looks = { silent: 5, all: 30 }

/** Bytes that are read and thrown away behind an answer. */
const mostBytes = 64 * 1024 * 1024

/**
 * Lets a connection end as its client needs it.
 *
 * A client that sends no more (its half of the connection is closed) gets the answers to what it has sent, but not
 * for ever: it may be gone altogether, which only what is written to it would tell.
 *
 * To close a connection on which bytes arrive that nobody reads resets it, and the client may lose the answer that
 * was sent before. So while the body of a request is still on its way, which `receiving` tells, the server ends its
 * half, reads on and throws away, within bounds.
 */
export const soften = (
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
    watch(socket, linger)
  }
}

const destroyWithin = (socket: Socket, millis: number): void => {
  if (socket.destroyed) return
  const deadline = setTimeout(() => socket.destroy(), millis)
  deadline.unref()
  socket.once("close", () => clearTimeout(deadline))
}

const watch = (socket: Socket, interval: number): void => {
  const begun = socket.bytesRead
  let seen = begun
  let silent = 0
  let all = 0
  const timer = setInterval(() => {
    const { bytesRead } = socket
    silent = bytesRead === seen ? silent + 1 : 0
    seen = bytesRead
    if (silent >= looks.silent || ++all >= looks.all || seen - begun > mostBytes) socket.destroy()
  }, interval)
  timer.unref()
  socket.once("close", () => clearInterval(timer))
}
