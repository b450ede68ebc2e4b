/**
 * A `node:http` server that knows its connections and decides which requests reach the application.
 */
import * as Http from "node:http"
import { Socket } from "node:net"
import { Duplex } from "node:stream"
import * as ConnectionMetrics from "../ConnectionMetrics.ts"
import { problemOfFields } from "../HeaderFields.ts"
import { soften } from "./Closing.ts"
import { type ConnectionLimits, defaults } from "./ConnectionLimits.ts"
import { Connections } from "./Connections.ts"
import { continueWhenRead } from "./Expectation.ts"
import { parseOn } from "./IgnoredUpgrade.ts"
import { Intake, receiptOf } from "./Intake.ts"
import type { Upgradable } from "./Listeners.ts"
import * as Raw from "./NodeServerRaw.ts"
import { type Account, Unsent } from "./Unsent.ts"

/** Where the server stands: requests reach the application only while it is `open`. */
export type Phase = "starting" | "open" | "draining"

/**
 * Requests for which only a WebSocket handshake at the right place is an upgrade. RFC 9110 lets a server pass over any
 * other, such as the `h2c` that HTTP/2 clients offer, whose request would otherwise lose its body. A handshake has no
 * body: node before 26 would drop it, and later ones would hand out a stream in the place of the socket.
 */
const requestClass = (policy: { readonly upgradable: Upgradable }) => {
  // Node's constructor assigns the property before a private field would be there.
  const offered = new WeakSet<Http.IncomingMessage>()
  return class Request extends Http.IncomingMessage {
    get upgrade(): boolean {
      return (
        offered.has(this) &&
        this.method === "GET" &&
        !hasBody(this) &&
        /(?:^|,)\s*websocket\s*(?:,|$)/i.test(this.headers.upgrade ?? "") &&
        policy.upgradable(this.url ?? "")
      )
    }

    set upgrade(isOffered: boolean | null) {
      if (isOffered === true) offered.add(this)
    }
  }
}

const hasBody = ({ headers }: Http.IncomingMessage): boolean =>
  headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0

/** Limits of the connections; all times in milliseconds. */
export interface Timing {
  /** From the first byte of a request to the end of its headers. */
  readonly headers: number
  /** From the first byte of a request to the end of its body. */
  readonly request: number
  /** How long a connection may stay idle between two requests. */
  readonly keepAlive: number
  /** How often the limits above are looked at. */
  readonly check: number
  /**
   * How long a refused connection is read from, so that the client gets to read the answer; where the body of a request
   * is still on its way, how often that is looked at.
   */
  readonly linger: number
  /** How long a client may take nothing of an answer that waits for it. */
  readonly patience: number
  /** How long a client that sends no more is served. */
  readonly halfOpen: number
}

/**
 * A client has 15 s to send its headers, so that slow ones cannot hold connections. A body of 16 MiB takes 10
 * minutes on a link of 0.25 Mbit/s. Idle connections outlive the 60 s that load balancers commonly keep theirs.
 * A client that sends no more is served for 10 s, in which every write that can be done is done. Answers have no limit
 * as long as they are read: polls take a minute and streams go on.
 */
export const timing: Timing = {
  headers: 15_000,
  request: 600_000,
  keepAlive: 65_000,
  check: 5_000,
  linger: 1_000,
  patience: 60_000,
  halfOpen: 10_000
}

/** Bytes of the request line and all headers together; Node's default of 16 KiB is little for long keys and cursors. */
const maxHeaderSize = 64 * 1024

const tooMany = "There are too many connections"

/** Told of each request as it comes in, refused ones included; returns what is called when its answer is at its end. */
export type Observe = (request: Http.IncomingMessage, response: Http.ServerResponse) => () => void

/** Why a request does not reach the application. */
interface Refusal {
  readonly status: number
  readonly error: string
  readonly headers?: Readonly<Record<string, string>>
}

/** See {@link Phase}; a refused request is answered here. */
export class Gate extends Http.Server {
  #phase: Phase = "starting"
  readonly #unsent: Unsent
  readonly #intake: Intake
  readonly #connections: Connections
  readonly #policy: { upgradable: Upgradable }

  /**
   * @param observe told of each request
   * @param limits of all connections together
   * @param isProbe whether a target tells of the service's health, which is served on connections beyond the limit too
   */
  constructor(
    private readonly timing: Timing,
    private readonly observe?: Observe,
    limits: ConnectionLimits = defaults,
    private readonly isProbe: (target: string) => boolean = () => false
  ) {
    const policy = { upgradable: (_target: string) => true }
    super({
      IncomingMessage: requestClass(policy),
      maxHeaderSize,
      headersTimeout: timing.headers,
      requestTimeout: timing.request,
      keepAliveTimeout: timing.keepAlive,
      connectionsCheckingInterval: timing.check,
      // Node would answer a missing Host with an empty body.
      requireHostHeader: false,
      keepAlive: true,
      keepAliveInitialDelay: 30_000
    })
    this.#policy = policy
    // Node would drop what goes beyond its own limit, and tell nobody. The limit on their bytes holds all the same.
    this.maxHeadersCount = 0
    this.#unsent = new Unsent(limits.unsentBytes)
    this.#intake = new Intake(limits.heldBodyBytes)
    this.#connections = new Connections(this.#unsent, limits.connections)
    // A client that sends no more may still wait for its answer.
    Reflect.set(this, "httpAllowHalfOpen", true)
    this.on("connection", (socket: Socket) => {
      const outcome = this.#connections.add(socket)
      if (outcome === "refused") {
        ConnectionMetrics.cut.increment("refused")
        Raw.refuse(socket, 503, tooMany)
        socket.destroySoon()
        return
      }
      if (outcome === "displacing") ConnectionMetrics.cut.increment("idle_displaced")
      this.#intake.open(socket)
      soften(socket, timing, () => this.#connections.receiving(socket))
      socket.on("close", () => this.#connections.remove(socket))
    })
    // Without a listener node 22 and later would cut the connection of a handshake; see `emit`.
    this.on("upgrade", () => undefined)
    // Without a listener node would send 100 Continue by itself; see `emit`.
    this.on("checkContinue", () => undefined)
    this.on("checkExpectation", (_request, response) => {
      send(response, 417, "Only 100-continue can be expected", { connection: "close" })
    })
    this.on("clientError", (error: NodeJS.ErrnoException, socket) =>
      this.#refuseMalformed(error, socket, timing.linger)
    )
  }

  /** Requests that are being answered. */
  get inFlight(): number {
    return this.#connections.answers
  }

  /** Connections, upgraded ones included. */
  get connected(): number {
    return this.#connections.size
  }

  /** Bytes that wait for clients. */
  get unsent(): number {
    return this.#unsent.total
  }

  /** Bytes of request bodies that are held. */
  get received(): number {
    return this.#intake.total
  }

  /** Cuts connections that do not read. To be called about once a second, with monotonic time; returns how many. */
  tick(now: number): number {
    this.#connections.settle()
    this.#intake.tick(now)
    return this.#unsent.tick(now, this.timing.patience)
  }

  /** Connections that may not be read, with what learns what lies in the kernel's queues for them. */
  suspects(): ReadonlyArray<Account> {
    return this.#unsent.suspects()
  }

  /** Lets requests through; those to be upgraded at targets where that can be, which is everywhere unless said. */
  open(upgradable?: Upgradable): void {
    if (upgradable !== undefined) this.#policy.upgradable = upgradable
    if (this.#phase === "starting") this.#phase = "open"
  }

  /**
   * Takes no more connections and no more requests; what is in flight goes on. The event `close` comes with the
   * end of the last connection.
   */
  drain(): void {
    if (this.#phase === "draining") return
    this.#phase = "draining"
    this.close()
    for (const { socket, answer } of this.#connections.all()) {
      // A connection that has sent nothing yet counts as busy with Node.
      if (socket.bytesRead === 0) socket.destroy()
      if (answer === undefined) continue
      answer.shouldKeepAlive = false
      // Headers that are sent may have promised to keep the connection.
      if (answer.headersSent) answer.once("finish", () => socket.destroySoon())
    }
  }

  /** Cuts all connections. */
  cut(): void {
    for (const { socket } of this.#connections.all()) socket.destroy()
  }

  override emit(event: string, ...args: ReadonlyArray<unknown>): boolean {
    const [request, target, head] = args
    if (request instanceof Http.IncomingMessage) {
      if ((event === "request" || event === "checkContinue") && target instanceof Http.ServerResponse) {
        if (event === "checkContinue") continueWhenRead(request, target)
        // The parser stops behind CONNECT as well, which is a request like any other here.
        if (request.headers.upgrade !== undefined || request.method === "CONNECT") parseOn(request.socket)
        const serve = () => this.#serve(request, target)
        this.#connections.take(request.socket, { request, answer: target, serve })
        return true
      }
      if (event === "upgrade" && target instanceof Duplex && head instanceof Buffer) {
        // Node lets go of an upgraded connection: an error that nobody hears would end the process.
        target.on("error", destroyIt)
        const serve = () => this.#upgrade(request, target, head)
        this.#connections.take(request.socket, { request, serve })
        return true
      }
    }
    return super.emit(event, ...args)
  }

  #serve(request: Http.IncomingMessage, response: Http.ServerResponse): void {
    const { socket } = request
    const ended = this.observe?.(request, response)
    response.on("close", () => {
      ended?.()
      receiptOf(socket)?.release()
      this.#connections.done(socket)
    })
    const refusal = this.#refusal(request)
    if (refusal === undefined) super.emit("request", request, response)
    else send(response, refusal.status, refusal.error, { connection: "close", ...refusal.headers })
  }

  #upgrade(request: Http.IncomingMessage, socket: Duplex, head: Buffer): void {
    const refusal = this.#refusal(request)
    if (refusal !== undefined) return Raw.refuse(socket, refusal.status, refusal.error)
    super.emit("upgrade", request, socket, head)
  }

  #refusal(request: Http.IncomingMessage): Refusal | undefined {
    if (this.#phase !== "open") {
      const error = this.#phase === "starting" ? "The service is starting" : "The service is shutting down"
      return { status: 503, error, headers: { "retry-after": "1" } }
    }
    if (this.#connections.isSurplus(request.socket) && !this.isProbe(request.url ?? "")) {
      ConnectionMetrics.cut.increment("refused")
      return { status: 503, error: tooMany, headers: { "retry-after": "1" } }
    }
    return request.headers.host === undefined && request.httpVersion === "1.1"
      ? { status: 400, error: "The Host header is missing" }
      : problemOfFields(request)
  }

  #refuseMalformed(error: NodeJS.ErrnoException, socket: Duplex, linger: number): void {
    // What follows on a connection that is refused already is thrown away.
    if (socket.writableEnded) return
    if (error.code === "ECONNRESET" || !socket.writable) {
      socket.destroy()
      return
    }
    const { status, error: text } = Raw.problemOf(error.code)
    const refuse = () => {
      if (socket.writableEnded) return
      Raw.refuse(socket, status, text)
      const deadline = setTimeout(() => socket.destroy(), linger)
      deadline.unref()
      socket.once("close", () => clearTimeout(deadline))
    }
    if (socket instanceof Socket) this.#connections.end(socket, refuse)
    else refuse()
  }
}

/** A listener that holds on to nothing, as a connection may last. */
function destroyIt(this: Duplex): void {
  this.destroy()
}

const send = (
  response: Http.ServerResponse,
  status: number,
  error: string,
  headers: Readonly<Record<string, string>>
): void => {
  const body = JSON.stringify({ error })
  response.writeHead(status, {
    "content-type": "application/json",
    "content-length": String(Buffer.byteLength(body)),
    ...headers
  })
  response.end(body)
}
