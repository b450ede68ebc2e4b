/**
 * A host's own platform server with the features of ours: request ids, metrics of requests and connections, and an
 * orderly shutdown also while clients follow the change log.
 */

import { IncomingMessage, type Server, type ServerResponse } from "node:http"
import type { Socket } from "node:net"
import * as Headers from "@effect/platform/Headers"
import type * as HttpApi from "@effect/platform/HttpApi"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as HttpApp from "@effect/platform/HttpApp"
import * as HttpServer from "@effect/platform/HttpServer"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { type Duration, Effect, ExecutionStrategy, Exit, Layer, Option, Scope } from "effect"
import * as MetricTags from "../../base/Observability/MetricTags.ts"
import { ServiceUnavailable } from "../ApiError.ts"
import * as ConnectionMetrics from "../ConnectionLimits.ts"
import { DrainingSignal } from "../DrainingSignal.ts"
import { requestIdAnnotation, requestIdHeader, requestIdOf, requestIds } from "../HeaderFields.ts"
import { fromError, toResponse } from "../Reply.ts"
import { Gate, type Observe } from "../Server/Gate.ts"
import { closeAfter } from "../Server/GracefulClose.ts"
import { NodeServer, shutDown } from "../Server/NodeServer.ts"
import * as RequestMetrics from "../Server/RequestMetrics.ts"
import { isUpgrade, remember } from "../WebSocket/Handshake.ts"

/** The server of a connection, which node stores on it. */
const serverOf = (socket: Socket): Server | undefined => {
  const server: unknown = Reflect.get(socket, "server")
  return typeof server === "object" && server !== null && "closeAllConnections" in server
    ? (server as Server)
    : undefined
}

/** The connections and requests in flight of a `node:http` server, derived from its requests. */
class NodeTraffic {
  readonly #servers = new Set<Server>()
  readonly #sockets = new Set<Socket>()
  readonly #answers = new Map<ServerResponse, Socket>()
  #isDraining = false

  /** @param observe called with each request, unless our own server has done so */
  constructor(
    private readonly observe: Observe,
    private readonly tags: MetricTags.MetricTags
  ) {}

  counts(): { readonly requests: number } {
    return { requests: this.#answers.size }
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

/** The shutdown of the server. */
export interface Options {
  /**
   * How long requests in flight and WebSockets may take at shutdown; then their connections are closed. 10 seconds by
   * default.
   */
  readonly gracePeriod?: Duration.DurationInput
}

const unavailable = (error: string) =>
  toResponse(
    fromError(new ServiceUnavailable({ error, headers: { ...ServiceUnavailable.retryAfter(), connection: "close" } }))
  )

const starting = unavailable("The service is starting")
const shuttingDown = unavailable("The service is shutting down")

/** Adds the id of a request to its log lines, its span and its answer. */
const identified = <E, R>(id: string, app: HttpApp.Default<E, R>): HttpApp.Default<E, R> =>
  HttpApp.appendPreResponseHandler((_request, response) =>
    Effect.succeed(HttpServerResponse.setHeader(response, requestIdHeader, id))
  ).pipe(
    Effect.zipRight(Effect.option(Effect.currentSpan)),
    Effect.flatMap(span => {
      if (Option.isSome(span)) span.value.attribute("http.request.id", id)
      return Effect.annotateLogs(app, requestIdAnnotation, id)
    })
  )

/**
 * Adds the features of our own server to the application of a platform server: request ids (`x-request-id`, log lines,
 * spans), the metrics of requests by the routes of `api` and of connections, and the shutdown.
 *
 * ```ts
 * HttpApiBuilder.serve().pipe(
 *   Layer.provide(StockServer.layer(Shop)),
 *   Layer.provide(NodeHttpServer.layer(createServer, { port: 8080 })),
 *   Layer.provide(application),
 *   Layer.provide(DrainingSignal.layer)
 * )
 * ```
 *
 * The server is provided before the application, so that it listens once that is built. If it is provided after it,
 * requests that come while the application is built are answered with 503.
 *
 * At shutdown the server starts {@link DrainingSignal}, which ends polls, streams and WebSockets. It stops accepting
 * connections, answers late requests with 503, lets requests in flight finish within the grace period, and then closes
 * the rest. The signal must be the one that the other layers have. A server that is not on `node:http` gets ids and the
 * signal alone.
 */
export const layer = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>,
  { gracePeriod }: Options = {}
): Layer.Layer<HttpServer.HttpServer, never, HttpServer.HttpServer | DrainingSignal> =>
  Layer.scoped(
    HttpServer.HttpServer,
    Effect.gen(function* () {
      const inner = yield* HttpServer.HttpServer
      const draining = yield* DrainingSignal
      const tags = yield* MetricTags.current
      ConnectionMetrics.registerCounts(tags)
      const traffic = new NodeTraffic(yield* RequestMetrics.observer(api), tags)
      const nextId = yield* requestIds
      // Our own server also listens from the start, and answers itself until it has an application.
      const isOurs = Option.isSome(yield* Effect.serviceOption(NodeServer))

      const served = <AppE, AppR>(app: HttpApp.Default<AppE, AppR>): HttpApp.Default<AppE, AppR> =>
        Effect.flatMap(HttpServerRequest.HttpServerRequest, request => {
          const { source } = request
          if (source instanceof IncomingMessage) {
            traffic.take(source, () => NodeHttpServerRequest.toServerResponse(request))
          }
          const id = requestIdOf(request.headers[requestIdHeader]) ?? nextId()
          return identified(id, draining.hasStarted() ? Effect.succeed(shuttingDown) : app)
        })

      const untilServed = yield* Scope.fork(yield* Effect.scope, ExecutionStrategy.sequential)
      if (!isOurs) yield* Scope.extend(inner.serve(served(Effect.succeed(starting))), untilServed)

      const end = shutDown(draining, traffic, gracePeriod)

      return HttpServer.make({
        address: inner.address,
        serve: (app, middleware) =>
          Scope.close(untilServed, Exit.void).pipe(
            Effect.zipRight(middleware === undefined ? inner.serve(served(app)) : inner.serve(served(app), middleware)),
            // In one turn of the event loop, so that no request arrives in between.
            Effect.withMaxOpsBeforeYield(Number.MAX_SAFE_INTEGER),
            // It runs before the finalizers of `serve`: the application keeps answering until the last request is done.
            Effect.zipRight(Effect.addFinalizer(() => end)),
            // The platform adds the headers of a request to its span; this one contains the credential of a browser.
            Effect.locallyWith(Headers.currentRedactedNames, names => [...names, "sec-websocket-protocol"])
          )
      })
    })
  )
