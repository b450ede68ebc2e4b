/**
 * The connections of a server: their number, the pipelined requests of each, and the idle ones by their network, in the
 * order in which they became idle.
 *
 * Each request makes its connection busy and idle again, so both take only a few assignments: the connections of a
 * network are a linked list. Networks are in a binary heap by the number of their connections. One without idle
 * connections is removed from the heap only when it reaches the top.
 */
import type { IncomingMessage, ServerResponse } from "node:http"
import type { Socket } from "node:net"
import { constVoid } from "effect/Function"
import * as IndexedArray from "../../base/Intrusive.ts"
import { type Linked, LinkedList } from "../../base/Intrusive.ts"
import { type HttpSocket, pause, resume } from "./NodeInternals.ts"
import type { Account, UnsentBudget } from "./UnsentBudget.ts"

/** A connection, and its neighbors among the idle ones of its network. */
export interface Idle<C extends Idle<C>> extends Linked<C> {
  readonly network: Network<C>
  isIdle: boolean
}

/** A remote network, and how many connections come from it. */
export interface Network<C extends Linked<C>> extends IndexedArray.Indexed {
  readonly name: string
  count: number
  /** Its idle connections, in the order in which they became idle. */
  readonly idle: LinkedList<C>
}

/** Finds the idle connection to close when there are too many connections. */
export class IdleConnections<C extends Idle<C>> {
  readonly #networks = new Map<string, Network<C>>()
  readonly #heap: Array<Network<C>> = []

  /** Counts another connection of a network. */
  join(name: string): Network<C> {
    let network = this.#networks.get(name)
    if (network === undefined) {
      network = { name, count: 0, idle: new LinkedList(), index: -1 }
      this.#networks.set(name, network)
    }
    network.count++
    if (network.index !== -1) this.#rise(network)
    return network
  }

  /** Undoes {@link join} for a closed connection. */
  leave(connection: C): void {
    const { network } = connection
    this.delete(connection)
    network.count--
    if (network.index !== -1) this.#sink(network)
    if (network.count > 0) return
    this.#networks.delete(network.name)
    if (network.index !== -1) this.#remove(network)
  }

  /** Adds a connection that has just become idle. */
  add(connection: C): void {
    if (connection.isIdle) return
    const { network } = connection
    connection.isIdle = true
    network.idle.add(connection)
    if (network.index === -1) this.#insert(network)
  }

  /** Removes a connection that has become busy. */
  delete(connection: C): void {
    if (!connection.isIdle) return
    connection.isIdle = false
    connection.network.idle.remove(connection)
  }

  /** The longest idle connection of the network with the most connections, among networks with an idle one. */
  first(): C | undefined {
    for (let largest = this.#heap[0]; largest !== undefined; largest = this.#heap[0]) {
      const { oldest } = largest.idle
      if (oldest !== undefined) return oldest
      this.#remove(largest)
    }
    return undefined
  }

  #insert(network: Network<C>): void {
    IndexedArray.append(this.#heap, network)
    this.#rise(network)
  }

  #remove(network: Network<C>): void {
    const { index } = network
    IndexedArray.remove(this.#heap, network)
    const moved = this.#heap[index]
    if (moved === undefined) return
    this.#rise(moved)
    this.#sink(moved)
  }

  #rise(network: Network<C>): void {
    while (network.index > 0) {
      const parent = this.#heap[(network.index - 1) >> 1]!
      if (parent.count >= network.count) return
      this.#swap(parent, network)
    }
  }

  #sink(network: Network<C>): void {
    for (;;) {
      const left = this.#heap[2 * network.index + 1]
      const right = this.#heap[2 * network.index + 2]
      const larger = right !== undefined && right.count > left!.count ? right : left
      if (larger === undefined || larger.count <= network.count) return
      this.#swap(network, larger)
    }
  }

  #swap(upper: Network<C>, lower: Network<C>): void {
    const { index } = upper
    upper.index = lower.index
    lower.index = index
    this.#heap[upper.index] = upper
    this.#heap[lower.index] = lower
  }
}

const connection = Symbol("causeway/connection")

/**
 * A request on a connection, and its answer. One without an answer is the last: an upgrade, or the refusal of malformed
 * bytes.
 */
export interface PipelinedRequest {
  readonly request?: IncomingMessage
  readonly answer?: ServerResponse
  readonly serve: () => void
}

/** A connection with its current request, and those that wait for it. It is idle without a current request. */
interface Connection extends IndexedArray.Indexed, Idle<Connection> {
  readonly socket: Socket
  readonly account: Account
  /** It was opened beyond the limit of connections, and is served only probes of the service's health. */
  readonly isSurplus: boolean
  readonly network: Network<Connection>
  serving: PipelinedRequest | undefined
  /** The bytes that are counted for the head of the current request. */
  headBytes: number
  readonly waiting: Array<PipelinedRequest>
}

interface Known extends HttpSocket {
  [connection]?: Connection
}

/** Node resumes reading whenever its writes have been sent, although requests may still wait. */
function stayPaused(this: Known): void {
  if (this[connection]?.waiting.some(isRequest) === true) pause(this)
}

/** Whether this is a request. After the last one nothing is parsed. */
const isRequest = ({ answer }: PipelinedRequest): boolean => answer !== undefined

/** The current request of an upgraded connection, which lives longer than the head of its handshake is needed. */
const last: PipelinedRequest = { serve: constVoid }

/** More requests than one read can contain: if the pause fails, the connection is closed. */
const maxWaiting = 4096

/** Approximate minimum memory of a waiting request, with its answer. */
const waitingBytes = 4096

/** Heads of up to this number of bytes, as almost all are, are not counted. */
const uncounted = 8192

/** Approximate memory of a header line in addition to its characters. */
const lineBytes = 200

/** Approximate memory of the head of a request. */
const weightOf = ({ request }: PipelinedRequest): number => {
  if (request === undefined) return 0
  const { rawHeaders } = request
  let weight = (rawHeaders.length / 2) * lineBytes
  for (let index = 0; index < rawHeaders.length; index++) weight += rawHeaders[index]!.length
  return weight
}

/**
 * The network by which connections are counted: the address, or for IPv6 its first 64 bits, which one client often has.
 */
const networkOf = (address: string | undefined): string => {
  if (address === undefined) return ""
  if (!address.includes(":")) return address
  if (address.startsWith("::ffff:") && address.includes(".")) return address.slice(7)
  const [head = "", tail] = address.split("%", 1)[0]!.split("::")
  const before = head === "" ? [] : head.split(":")
  const after = tail === undefined || tail === "" ? [] : tail.split(":")
  const zeros = tail === undefined ? 0 : 8 - before.length - after.length
  return [...before, ...Array.from({ length: zeros }, () => "0"), ...after].slice(0, 4).join(":")
}

/** Connections beyond the limit, so that probes of health can reach the service. */
const reserve = 16

/**
 * The connections of a server. The requests of each are served one after the other.
 *
 * Node emits pipelined requests as it parses them. If they were served concurrently, answers would pile up for a client
 * that does not read, and a read could overtake the write before it (RFC 9112, 9.3.2). While requests wait, no further
 * bytes are read from the connection, so at most one read of requests waits.
 *
 * They are stored in an array rather than a set: the old tables of a changing set keep former members
 * alive until the next full garbage collection.
 */
export class Connections {
  readonly #all: Array<Connection> = []
  /**
   * If there are too many connections, one of these is closed: in the network with the most, the one that has
   * been idle for the longest time, so that a client that opens many connections displaces its own.
   */
  readonly #idle = new IdleConnections<Connection>()
  #answers = 0
  /** The listener of all connections. */
  readonly #onClose: (this: Known) => void

  /**
   * @param budget counts the bytes that wait for clients
   * @param limit connections at a time
   */
  constructor(
    private readonly budget: UnsentBudget,
    private readonly limit: number
  ) {
    const remove = (socket: Known) => this.remove(socket)
    this.#onClose = function (this: Known) {
      remove(this)
    }
  }

  get size(): number {
    return this.#all.length
  }

  get answers(): number {
    return this.#answers
  }

  /** Adds a connection, or refuses it. If there are too many, an idle one is closed instead. */
  add(socket: Known): "added" | "displacing" | "refused" {
    if (socket[connection] !== undefined) return "added"
    const displaced = this.size >= this.limit ? this.#idle.first() : undefined
    if (displaced !== undefined) {
      this.remove(displaced.socket)
      displaced.socket.destroy()
    }
    if (this.size >= this.limit + reserve) return "refused"
    const added: Connection = {
      socket,
      account: this.budget.open(socket),
      isSurplus: this.size >= this.limit,
      network: this.#idle.join(networkOf(socket.remoteAddress)),
      previous: undefined,
      next: undefined,
      isIdle: false,
      index: -1,
      serving: undefined,
      headBytes: 0,
      waiting: []
    }
    socket[connection] = added
    IndexedArray.append(this.#all, added)
    this.#idle.add(added)
    socket.on("drain", stayPaused).on("close", this.#onClose)
    return displaced === undefined ? "added" : "displacing"
  }

  /** Whether a connection was opened beyond the limit, and there are still too many. */
  isSurplus(socket: Known): boolean {
    return socket[connection]?.isSurplus === true && this.size > this.limit
  }

  remove(socket: Known): void {
    const removed = socket[connection]
    if (removed === undefined || removed.index === -1) return
    IndexedArray.remove(this.#all, removed)
    this.#idle.leave(removed)
    removed.account.close()
  }

  /** Updates the unsent bytes of each connection. To be called once a second. */
  recount(): void {
    for (const { account, socket } of this.#all) if (socket.writableLength > 0) account.recount()
  }

  /** All connections, each with its answer in progress. */
  all(): ReadonlyArray<{ readonly socket: Socket; readonly answer: ServerResponse | undefined }> {
    return this.#all.map(({ socket, serving }) => ({ socket, answer: serving?.answer }))
  }

  /** The current request of a connection, while its body is still arriving. */
  receiving(socket: Known): IncomingMessage | undefined {
    const request = socket[connection]?.serving?.request
    return request?.complete === false ? request : undefined
  }

  /** Serves a request, at once or when those before it are done. */
  take(socket: Known, next: PipelinedRequest): void {
    const of = socket[connection]
    if (of === undefined) return next.serve()
    if (of.serving === undefined) return this.#begin(of, next)
    if (isRequest(next) && of.waiting.length === 0) pause(socket)
    of.account.hold(waitingBytes + weightOf(next))
    if (of.waiting.push(next) > maxWaiting) socket.destroy()
  }

  /**
   * Serves the refusal of malformed bytes: after the complete requests, and instead of an incomplete one,
   * unless its answer has started.
   */
  end(socket: Known, serve: () => void): void {
    const of = socket[connection]
    const newest = of?.waiting.at(-1) ?? of?.serving
    if (of === undefined || newest === undefined) return serve()
    // It is already being ended.
    if (newest.request === undefined) return
    if (newest.request.complete) return this.take(socket, { serve })
    const last = of.waiting.pop()
    if (last !== undefined) {
      of.account.hold(-weightOf(last))
      of.waiting.push({ serve })
    } else if (newest.answer?.headersSent === true) socket.destroy()
    else serve()
  }

  /** Called at the end of an answer: serves the next request, unless the connection is gone. */
  done(socket: Known): void {
    const of = socket[connection]
    if (of === undefined) return
    if (of.serving?.answer !== undefined) this.#answers--
    of.serving = undefined
    if (of.headBytes > 0) {
      of.account.hold(-of.headBytes)
      of.headBytes = 0
    }
    if (of.account.bytes > 0) of.account.recount()
    const next = socket.destroyed ? undefined : of.waiting.shift()
    if (next === undefined) {
      of.waiting.length = 0
      if (of.index !== -1) this.#idle.add(of)
      return
    }
    of.account.hold(-waitingBytes - weightOf(next))
    if (of.waiting.length === 0 && isRequest(next)) resume(socket)
    this.#begin(of, next)
  }

  #begin(of: Connection, next: PipelinedRequest): void {
    of.serving = next.answer === undefined ? last : next
    this.#idle.delete(of)
    if (next.answer !== undefined) {
      this.#answers++
      // Polls, streams and slow bodies keep the head in memory; a WebSocket does not.
      const weight = weightOf(next)
      if (weight > uncounted) {
        of.headBytes = weight
        of.account.hold(weight)
      }
    }
    next.serve()
  }
}
