import type { ServerResponse } from "node:http"
import type { Socket } from "node:net"

/** What node's HTTP server keeps on a connection, by which it holds back clients that do not read (`_http_server`). */
type HttpSocket = Socket & { _paused?: boolean; readonly parser?: { readonly resume: () => void } | null }

const connection = Symbol("causeway/connection")

/** A connection, and the requests on it: one that is served, and those that wait for it. */
interface Connection {
  readonly socket: Socket
  /** Where it stands among all. */
  place: number
  isBusy: boolean
  /** The answer that is under way; none where the connection is becoming something else. */
  answer: ServerResponse | undefined
  readonly waiting: Array<() => void>
}

interface Known extends HttpSocket {
  [connection]?: Connection
}

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
 * The connections of a server, which lets the requests of each be served one after the other.
 *
 * Node hands out pipelined requests as it parses them. Served all at once, their answers would pile up before a
 * client that reads none of them, and a read could overtake the write before it (RFC 9112, 9.3.2). While requests
 * wait, no more bytes are read from the connection, so that what waits fits into one read.
 *
 * They stand in an array rather than a set: a set that members enter and leave all the time leaves tables behind by
 * which V8 keeps its former members until memory is collected in full.
 */
export class Connections {
  readonly #all: Array<Connection> = []
  #answers = 0

  /** How many there are. */
  get size(): number {
    return this.#all.length
  }

  /** How many answers are under way. */
  get answers(): number {
    return this.#answers
  }

  add(socket: Known): void {
    if (socket[connection] !== undefined) return
    const added = { socket, place: this.#all.length, isBusy: false, answer: undefined, waiting: [] }
    socket[connection] = added
    this.#all.push(added)
  }

  remove(socket: Known): void {
    const removed = socket[connection]
    const last = this.#all.at(-1)
    if (removed === undefined || last === undefined || this.#all[removed.place] !== removed) return
    this.#all[removed.place] = last
    last.place = removed.place
    this.#all.pop()
  }

  /** All that there are by now. */
  all(): ReadonlyArray<Pick<Readonly<Connection>, "socket" | "answer">> {
    return [...this.#all]
  }

  /** The answer that is under way on a connection. */
  answerOn(socket: Known): ServerResponse | undefined {
    return socket[connection]?.answer
  }

  /** Runs what serves a request, at once or when those before it are done. */
  take(socket: Known, answer: ServerResponse | undefined, serve: () => void): void {
    const of = socket[connection]
    if (of === undefined) return serve()
    const begin = () => {
      of.isBusy = true
      of.answer = answer
      if (answer !== undefined) this.#answers++
      serve()
    }
    if (!of.isBusy) return begin()
    if (of.waiting.length === 0) pause(socket)
    if (of.waiting.push(begin) > maxWaiting) socket.destroy()
  }

  /** Tells that an answer is done, and gives the turn to the next request; on a connection that is gone there is none. */
  done(socket: Known): void {
    const of = socket[connection]
    if (of === undefined) return
    if (of.answer !== undefined) this.#answers--
    of.answer = undefined
    const next = socket.destroyed ? undefined : of.waiting.shift()
    if (next === undefined) {
      of.isBusy = false
      of.waiting.length = 0
      return
    }
    if (of.waiting.length === 0) resume(socket)
    next()
  }
}
