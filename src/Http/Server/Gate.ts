/** A `node:http` server that knows its connections and decides which requests reach the application. */
import * as Http from "node:http"
import { Socket } from "node:net"
import { Duplex } from "node:stream"
import * as MetricTags from "../../base/Observability/MetricTags.ts"
import { bodyOf, ServiceUnavailable } from "../ApiError.ts"
import * as ConnectionMetrics from "../ConnectionLimits.ts"
import { type ConnectionLimits, defaults, type Timing } from "../ConnectionLimits.ts"
import * as Cors from "../Cors.ts"
import { problemOfFields } from "../HeaderFields.ts"
import { BodyBudget, heldBodyOf } from "./BodyBudget.ts"
import { Connections } from "./Connections.ts"
import { closeAfter, closeGracefully, closeUpgraded, destroyWithin, problemOf, refuse } from "./GracefulClose.ts"
import { continueWhenRead, parseRest } from "./NodeInternals.ts"
import { type Account, UnsentBudget } from "./UnsentBudget.ts"

/** Says whether connections can become WebSockets at a request's target. */
export type Upgradable = (target: string) => boolean

/** What serves the requests of a `node:http` server. */
export interface Listeners {
  readonly request: (request: Http.IncomingMessage, response: Http.ServerResponse) => void
  readonly upgrade: (request: Http.IncomingMessage, socket: Duplex, head: Buffer) => void
  /** A handshake at any other target is an ordinary request. */
  readonly upgradable: Upgradable
}

/** Bytes of the request line and all headers: node's default of 16 KiB is little for long keys and cursors. */
const maxHeaderSize = 64 * 1024

const tooMany = "There are too many connections"

/** Called with each request, refused ones included; returns what is called at the end of its answer. */
export type Observe = (request: Http.IncomingMessage, response: Http.ServerResponse) => () => void

/** Why a request does not reach the application. */
interface Refusal {
  readonly status: number
  readonly error: string
  readonly headers?: Readonly<Record<string, string>>
}

const hasBody = ({ headers }: Http.IncomingMessage): boolean =>
  headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0

/**
 * The class of requests, of which only a WebSocket handshake at an upgradable target is an upgrade. RFC 9110 lets a
 * server ignore any other, such as the `h2c` that HTTP/2 clients offer, whose request would otherwise lose its body. A
 * handshake has no body: node before 26 would drop it, and later ones would emit a stream instead of the socket.
 */
const requestClass = (policy: { readonly upgradable: Upgradable }): typeof Http.IncomingMessage => {
  // Node's constructor assigns the property before a private field would be initialized.
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

/** Passes requests to its listeners while it is open, and answers those that it refuses. */
export class Gate extends Http.Server {
  #state: "starting" | "open" | "draining" = "starting"
  readonly #unsent: UnsentBudget
  readonly #bodies: BodyBudget
  readonly #connections: Connections
  readonly #policy: { upgradable: Upgradable }
  readonly #origins: Cors.AllowedOrigins | undefined

  /**
   * @param observe called with each request
   * @param limits of all connections together
   * @param isProbe whether a target is a probe of the service's health, which is also served beyond the limit
   * @param origins of web pages that may send requests and read their answers
   * @param tags of the metrics of its connections
   */
  constructor(
    private readonly timing: Timing,
    private readonly observe?: Observe,
    limits: ConnectionLimits = defaults,
    private readonly isProbe: (target: string) => boolean = () => false,
    origins: Cors.AllowedOrigins = [],
    private readonly tags: MetricTags.MetricTags = MetricTags.none
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
    this.#origins = Cors.isUsed(origins) ? origins : undefined
    // Node would silently drop headers beyond its own limit. The limit on their bytes still applies.
    this.maxHeadersCount = 0
    this.#unsent = new UnsentBudget(limits.unsentBytes, tags)
    this.#bodies = new BodyBudget(limits.heldBodyBytes, tags)
    this.#connections = new Connections(this.#unsent, limits.connections)
    const ending = { ...timing, receiving: (socket: Socket) => this.#connections.receiving(socket) }
    // A client that has half-closed may still wait for its answer.
    Reflect.set(this, "httpAllowHalfOpen", true)
    this.on("connection", (socket: Socket) => {
      const outcome = this.#connections.add(socket)
      if (outcome === "refused") {
        ConnectionMetrics.countCut("refused", tags)
        refuse(socket, 503, tooMany)
        socket.destroySoon()
        return
      }
      if (outcome === "displacing") ConnectionMetrics.countCut("idle_displaced", tags)
      this.#bodies.open(socket)
      closeGracefully(socket, ending)
    })
    // Without a listener node 22 and later would close the connection of a handshake; see `emit`.
    this.on("upgrade", () => undefined)
    // Without a listener node would send 100 Continue automatically; see `emit`.
    this.on("checkContinue", () => undefined)
    this.on("checkExpectation", (_request, response) => {
      send(response, 417, "Only 100-continue can be expected", { connection: "close" })
    })
    this.on("clientError", (error: NodeJS.ErrnoException, socket) =>
      this.#refuseMalformed(error, socket, timing.linger)
    )
  }

  /** Whether its requests are already counted. */
  get isObserved(): boolean {
    return this.observe !== undefined
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

  /** Bytes of request bodies in memory. */
  get received(): number {
    return this.#bodies.total
  }

  /**
   * Closes connections that do not read, and returns their number. To be called each second, with monotonic
   * milliseconds.
   */
  tick(now: number): number {
    this.#connections.recount()
    this.#bodies.tick(now)
    return this.#unsent.tick(now, this.timing.readTimeout)
  }

  /** Accounts of connections whose clients may not read, for which the kernel's queues must be checked. */
  possiblyStalled(): ReadonlyArray<Account> {
    return this.#unsent.possiblyStalled()
  }

  /**
   * Starts passing requests. Handshakes are upgrades at targets that `upgradable` allows, or at all targets without it.
   */
  open(upgradable?: Upgradable): void {
    if (upgradable !== undefined) this.#policy.upgradable = upgradable
    if (this.#state === "starting") this.#state = "open"
  }

  /**
   * Accepts no further connections and requests; those in flight continue. The event `close` is emitted at the end
   * of the last connection.
   */
  drain(): void {
    if (this.#state === "draining") return
    this.#state = "draining"
    this.close()
    for (const { socket, answer } of this.#connections.all()) {
      // Node regards a connection that has sent nothing yet as busy.
      if (socket.bytesRead === 0) socket.destroy()
      if (answer !== undefined) closeAfter(answer, socket)
    }
  }

  cut(): void {
    for (const { socket } of this.#connections.all()) socket.destroy()
  }

  override emit(event: string, ...args: ReadonlyArray<unknown>): boolean {
    const [request, target, head] = args
    if (request instanceof Http.IncomingMessage) {
      if ((event === "request" || event === "checkContinue") && target instanceof Http.ServerResponse) {
        if (event === "checkContinue") continueWhenRead(request, target)
        // The parser also stops after CONNECT, which is an ordinary request here.
        if (request.headers.upgrade !== undefined || request.method === "CONNECT") parseRest(request.socket)
        const serve = () => this.#serve(request, target)
        this.#connections.take(request.socket, { request, answer: target, serve })
        return true
      }
      if (event === "upgrade" && target instanceof Duplex && head instanceof Buffer) {
        // Node removes its own listener, and an error without a listener would end the process.
        target.on("error", destroyThis)
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
      if (hasBody(request)) heldBodyOf(socket)?.release()
      this.#connections.done(socket)
    })
    const refusal = this.#refusal(request)
    if (this.#origins !== undefined) {
      if (refusal !== undefined) response.shouldKeepAlive = false
      if (Cors.apply(this.#origins, request, response)) return
    }
    if (refusal === undefined) super.emit("request", request, response)
    else send(response, refusal.status, refusal.error, { connection: "close", ...refusal.headers })
  }

  #upgrade(request: Http.IncomingMessage, socket: Duplex, head: Buffer): void {
    closeUpgraded(socket, this.timing)
    const refusal = this.#refusal(request)
    if (refusal !== undefined) return refuse(socket, refusal.status, refusal.error)
    super.emit("upgrade", request, socket, head)
  }

  #refusal(request: Http.IncomingMessage): Refusal | undefined {
    if (this.#state !== "open") {
      const error = this.#state === "starting" ? "The service is starting" : "The service is shutting down"
      return { status: 503, error, headers: ServiceUnavailable.retryAfter() }
    }
    if (this.#connections.isSurplus(request.socket) && !this.isProbe(request.url ?? "")) {
      ConnectionMetrics.countCut("refused", this.tags)
      return { status: 503, error: tooMany, headers: ServiceUnavailable.retryAfter() }
    }
    const coding = request.headers["transfer-encoding"]
    // The length of such a body is not known (RFC 9112, 6.1). Node emits the request before it fails.
    if (coding !== undefined && !/(?:^|,)[ \t]*chunked[ \t]*$/i.test(coding)) {
      return { status: 501, error: `Transfer-Encoding: ${coding} is not supported; send chunked, or a Content-Length` }
    }
    return request.headers.host === undefined && request.httpVersion === "1.1"
      ? { status: 400, error: "The Host header is missing" }
      : problemOfFields(request)
  }

  #refuseMalformed(error: NodeJS.ErrnoException, socket: Duplex, linger: number): void {
    // Later bytes on a refused connection are discarded.
    if (socket.writableEnded) return
    if (error.code === "ECONNRESET" || !socket.writable) {
      socket.destroy()
      return
    }
    const { status, error: text } = problemOf(error.code)
    const refuseOnce = () => {
      if (socket.writableEnded) return
      refuse(socket, status, text)
      destroyWithin(socket, linger)
    }
    if (socket instanceof Socket) this.#connections.end(socket, refuseOnce)
    else refuseOnce()
  }
}

/** A listener without references, because connections may last long. */
function destroyThis(this: Duplex): void {
  this.destroy()
}

const send = (
  response: Http.ServerResponse,
  status: number,
  error: string,
  headers: Readonly<Record<string, string>>
): void => {
  const body = bodyOf(error)
  response.writeHead(status, {
    "content-type": "application/json",
    "content-length": String(Buffer.byteLength(body)),
    ...headers
  })
  response.end(body)
}
