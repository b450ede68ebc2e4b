import type { IncomingMessage, Server, ServerResponse } from "node:http"
import type { Socket } from "node:net"
import { Effect } from "effect"
import type { MetricTags } from "../../MetricTags.ts"
import * as ConnectionMetrics from "../ConnectionMetrics.ts"
import { Gate, type Observe } from "../Server/Gate.ts"
import { isUpgrade, remember } from "../WebSocket/Handshake.ts"

/** The server of a connection, which node stores on it. */
const serverOf = (socket: Socket): Server | undefined => {
  const server: unknown = Reflect.get(socket, "server")
  return typeof server === "object" && server !== null && "closeAllConnections" in server
    ? (server as Server)
    : undefined
}

/** The connections and requests in flight of a `node:http` server, derived from its requests. */
export class NodeTraffic {
  readonly #servers = new Set<Server>()
  readonly #sockets = new Set<Socket>()
  readonly #answers = new Map<ServerResponse, Socket>()
  #isDraining = false

  /** @param observe called with each request, unless our own server has done so */
  constructor(
    private readonly observe: Observe,
    private readonly tags: MetricTags
  ) {}

  /** Requests that are being answered. */
  get inFlight(): number {
    return this.#answers.size
  }

  /** Tracks a request. To be called while its event is emitted. Our own server tracks its connections itself. */
  take(request: IncomingMessage, response: () => ServerResponse): void {
    const { socket } = request
    const server = serverOf(socket)
    if (server instanceof Gate) {
      if (server.isObserved || isUpgrade(request)) return
      const answer = response()
      answer.once("close", this.observe(request, answer))
      return
    }
    if (server !== undefined) this.#addServer(server)
    this.#addSocket(socket)
    if (isUpgrade(request)) {
      // Node removes its own listener, and an error without a listener would end the process.
      socket.on("error", () => socket.destroy())
      return
    }
    this.#addAnswer(request, response())
  }

  /** Stops accepting connections and closes those that are idle; the others close after their answers. */
  drain(): void {
    this.#isDraining = true
    for (const server of this.#servers) server.close()
    // Node regards a connection that has sent nothing yet as busy.
    for (const socket of this.#sockets) if (socket.bytesRead === 0) socket.destroy()
    for (const [answer, socket] of this.#answers) closeAfter(answer, socket)
  }

  /** Closes all connections at once. */
  cut(): void {
    for (const server of this.#servers) server.closeAllConnections()
    for (const socket of this.#sockets) socket.destroy()
  }

  /** Waits until no answer is in flight and the drained server has no connections. */
  readonly ended: Effect.Effect<void> = Effect.async(resume => {
    const check = (): void => {
      if (this.#answers.size === 0 && this.#sockets.size === 0) resume(Effect.void)
    }
    this.#onChange = check
    check()
    return Effect.sync(() => {
      this.#onChange = () => {}
    })
  })

  #onChange: () => void = () => {}

  #addServer(server: Server): void {
    if (this.#servers.has(server)) return
    this.#servers.add(server)
    server.on("connection", (socket: Socket) => this.#addSocket(socket))
    // The bytes after a handshake are only in the event.
    server.prependListener("upgrade", remember)
  }

  #addSocket(socket: Socket): void {
    if (this.#sockets.has(socket) || socket.destroyed) return
    this.#sockets.add(socket)
    ConnectionMetrics.connections.unsafeModify(1, this.tags)
    socket.once("close", () => {
      this.#sockets.delete(socket)
      ConnectionMetrics.connections.unsafeModify(-1, this.tags)
      this.#onChange()
    })
  }

  #addAnswer(request: IncomingMessage, answer: ServerResponse): void {
    const ended = this.observe(request, answer)
    this.#answers.set(answer, request.socket)
    if (this.#isDraining) closeAfter(answer, request.socket)
    answer.once("close", () => {
      ended()
      this.#answers.delete(answer)
      this.#onChange()
    })
  }
}

/** Closes a connection after its current answer. */
const closeAfter = (answer: ServerResponse, socket: Socket): void => {
  answer.shouldKeepAlive = false
  // Its headers may have said keep-alive.
  if (answer.headersSent) answer.once("finish", () => socket.destroySoon())
}
