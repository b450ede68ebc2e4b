import type { IncomingMessage, ServerResponse } from "node:http"
import type { Socket } from "node:net"
import { IdleConnections, type Member } from "./IdleConnections.ts"
import type { Account, Unsent } from "./Unsent.ts"

/** What node's HTTP server keeps on a connection, by which it holds back clients that do not read (`_http_server`). */
type HttpSocket = Socket & { _paused?: boolean; readonly parser?: { readonly resume: () => void } | null }

const connection = Symbol("causeway/connection")

/** A turn on a connection. One without an answer is its last: an upgrade, or the refusal of what is no request. */
export interface Turn {
  readonly request?: IncomingMessage
  readonly answer?: ServerResponse
  readonly serve: () => void
}

/** A connection, and the turns on it: one that is being served, and those that wait for it. */
interface Connection extends Member {
  readonly socket: Socket
  readonly account: Account
  /** It came beyond the limit of connections, and is served nothing but what tells of the service's health. */
  readonly isSurplus: boolean
  /** Where it stands among all. */
  place: number
  serving: Turn | undefined
  /** What is counted for the head of the request that is served. */
  held: number
  readonly waiting: Array<Turn>
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

/** Node goes on reading whenever what was written has left, though requests may still wait. */
function stayPaused(this: Known): void {
  if (this[connection]?.waiting.some(isRequest) === true) pause(this)
}

/** Behind a last turn nothing is parsed: who has that turn reads what else there is. */
const isRequest = ({ answer }: Turn): boolean => answer !== undefined

/** More than one read can bring: should the pause not hold, a connection ends rather than grow. */
const maxWaiting = 4096

/** About what a request that waits for its turn takes of memory at least, with its answer. */
const waitingBytes = 4096

/** Up to so many bytes heads are not counted, as those of almost all clients. */
const uncounted = 8192

/** About what a header line takes of memory beside its characters. */
const lineBytes = 200

/** About what the head of a request takes of memory for as long as the request is there. */
const weightOf = ({ request }: Turn): number => {
  if (request === undefined) return 0
  const { rawHeaders } = request
  let weight = (rawHeaders.length / 2) * lineBytes
  for (let index = 0; index < rawHeaders.length; index++) weight += rawHeaders[index]!.length
  return weight
}

/** Connections taken in beyond the limit, so that probes of health find the service. */
const reserve = 16

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
  readonly #idle = new IdleConnections<Connection>()
  #answers = 0

  /**
   * @param budget counts what waits for clients
   * @param limit connections at a time
   */
  constructor(
    private readonly budget: Unsent,
    private readonly limit: number
  ) {}

  /** How many there are. */
  get size(): number {
    return this.#all.length
  }

  /** How many answers are under way. */
  get answers(): number {
    return this.#answers
  }

  /**
   * Takes in a connection. Where there are too many an idle one is closed in its place. Returns what became of it: it
   * may be refused, and then nothing is done about it here.
   */
  add(socket: Known): "added" | "displacing" | "refused" {
    if (socket[connection] !== undefined) return "added"
    const displaced = this.size >= this.limit ? this.#idle.displaced() : undefined
    if (displaced !== undefined) {
      this.remove(displaced.socket)
      displaced.socket.destroy()
    }
    if (this.size >= this.limit + reserve) return "refused"
    const added: Connection = {
      socket,
      account: this.budget.open(socket),
      isSurplus: this.size >= this.limit,
      place: this.#all.length,
      serving: undefined,
      held: 0,
      waiting: [],
      holder: undefined,
      isIdle: false,
      older: undefined,
      newer: undefined
    }
    socket[connection] = added
    this.#all.push(added)
    this.#idle.add(added, socket.remoteAddress)
    socket.on("drain", stayPaused)
    return displaced === undefined ? "added" : "displacing"
  }

  /** Whether a connection came beyond the limit, and there are still too many. */
  isSurplus(socket: Known): boolean {
    return socket[connection]?.isSurplus === true && this.size > this.limit
  }

  remove(socket: Known): void {
    const removed = socket[connection]
    const last = this.#all.at(-1)
    if (removed === undefined || last === undefined || this.#all[removed.place] !== removed) return
    this.#all[removed.place] = last
    last.place = removed.place
    this.#all.pop()
    this.#idle.remove(removed)
  }

  /** Counts what waits on each connection, whoever wrote it. */
  settle(): void {
    for (const { account, socket } of this.#all) if (socket.writableLength > 0) account.settle()
  }

  /** All that there are by now, with the answer that is under way on each. */
  all(): ReadonlyArray<{ readonly socket: Socket; readonly answer: ServerResponse | undefined }> {
    return this.#all.map(({ socket, serving }) => ({ socket, answer: serving?.answer }))
  }

  /** The request that is served on a connection, as long as its body is still on its way. */
  receiving(socket: Known): IncomingMessage | undefined {
    const request = socket[connection]?.serving?.request
    return request?.complete === false ? request : undefined
  }

  /** Serves a request, at once or when those before it are done. */
  take(socket: Known, turn: Turn): void {
    const of = socket[connection]
    if (of === undefined) return turn.serve()
    if (of.serving === undefined) return this.#begin(of, turn)
    if (isRequest(turn) && of.waiting.length === 0) pause(socket)
    of.account.hold(waitingBytes + weightOf(turn))
    if (of.waiting.push(turn) > maxWaiting) socket.destroy()
  }

  /**
   * Ends a connection on which something came that is no request: behind the requests that came whole, and in the
   * place of one that did not, unless its answer has begun.
   */
  end(socket: Known, serve: () => void): void {
    const of = socket[connection]
    const newest = of?.waiting.at(-1) ?? of?.serving
    if (of === undefined || newest === undefined) return serve()
    // It is being ended already.
    if (newest.request === undefined) return
    if (newest.request.complete) return this.take(socket, { serve })
    const last = of.waiting.pop()
    if (last !== undefined) {
      of.account.hold(-weightOf(last))
      of.waiting.push({ serve })
    } else if (newest.answer?.headersSent === true) socket.destroy()
    else serve()
  }

  /** Tells that an answer is done, and gives the turn to the next request; on a connection that is gone there is none. */
  done(socket: Known): void {
    const of = socket[connection]
    if (of === undefined) return
    if (of.serving?.answer !== undefined) this.#answers--
    of.serving = undefined
    if (of.held > 0) {
      of.account.hold(-of.held)
      of.held = 0
    }
    if (of.account.bytes > 0) of.account.settle()
    const next = socket.destroyed ? undefined : of.waiting.shift()
    if (next === undefined) {
      of.waiting.length = 0
      this.#idle.rest(of)
      return
    }
    of.account.hold(-waitingBytes - weightOf(next))
    if (of.waiting.length === 0 && isRequest(next)) resume(socket)
    this.#begin(of, next)
  }

  #begin(of: Connection, turn: Turn): void {
    of.serving = turn
    this.#idle.wake(of)
    if (turn.answer !== undefined) {
      this.#answers++
      // Polls, streams and bodies that do not end keep the head in memory. Of a WebSocket nothing is kept.
      const weight = weightOf(turn)
      if (weight > uncounted) {
        of.held = weight
        of.account.hold(weight)
      }
    }
    turn.serve()
  }
}
