import type { Socket } from "node:net"

interface Line {
  isBusy: boolean
  readonly waiting: Array<() => void>
}

/** What node's HTTP server keeps on a connection, by which it holds back clients that do not read (`_http_server`). */
type HttpSocket = Socket & { _paused?: boolean; readonly parser?: { readonly resume: () => void } | null }

/** Without the mark, node would go on reading with the next message that it has parsed. */
const pause = (socket: HttpSocket): void => {
  socket._paused = true
  socket.pause()
}

const resume = (socket: HttpSocket): void => {
  socket._paused = false
  socket.parser?.resume()
  socket.resume()
}

/** More than one read can bring: should the pause not hold, a connection ends rather than grow. */
const maxWaiting = 4096

/**
 * Lets the requests of a connection be served one after the other.
 *
 * Node hands out pipelined requests as it parses them. Served all at once, their answers would pile up before a
 * client that reads none of them, and a read could overtake the write before it (RFC 9112, 9.3.2). While requests
 * wait, no more bytes are read from the connection, so that what waits fits into one read.
 */
export class Turns {
  readonly #lines = new WeakMap<Socket, Line>()

  /** Runs what serves a request, at once or when those before it are done. */
  take(socket: Socket, serve: () => void): void {
    const line = this.#lines.get(socket)
    if (line === undefined) {
      this.#lines.set(socket, { isBusy: true, waiting: [] })
      serve()
    } else if (line.isBusy) {
      if (line.waiting.length === 0) pause(socket)
      if (line.waiting.push(serve) > maxWaiting) socket.destroy()
    } else {
      line.isBusy = true
      serve()
    }
  }

  /** Gives the turn to whoever waits; what waits on a connection that is gone is forgotten. */
  done(socket: Socket): void {
    const line = this.#lines.get(socket)
    if (line === undefined) return
    const next = socket.destroyed ? undefined : line.waiting.shift()
    if (next === undefined) {
      line.isBusy = false
      line.waiting.length = 0
      return
    }
    if (line.waiting.length === 0) resume(socket)
    next()
  }
}
