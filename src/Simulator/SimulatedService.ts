/**
 * A simulated service: a server that can be made to refuse connections, and whose requests have the faults of the rules.
 */
import * as http from "node:http"
import { type IncomingMessage, type OutgoingHttpHeaders, ServerResponse } from "node:http"
import { type AddressInfo, Socket } from "node:net"
import type { Duplex } from "node:stream"
import { Cause, Duration, Effect, type Fiber, FiberId, FiberSet, Redacted, Schema, type Scope, Stream } from "effect"
import { yieldToEventLoop } from "../base/Time/EventLoop.ts"
import { type ListenFailed, listenFailed } from "../Http/ListenFailed.ts"
import { type Delivery, type FaultRules, noFaults, type Plan } from "./Fault.ts"
import { type Call, callOf, type Service, type TrafficLog } from "./TrafficLog.ts"

/** A request that is answered with a status and `{error}`. */
export class Refused extends Schema.TaggedError<Refused>()("Refused", {
  status: Schema.Int,
  message: Schema.String,
  headers: Schema.optionalWith(Schema.Record({ key: Schema.String, value: Schema.String }), { default: () => ({}) })
}) {}

export interface Answer {
  readonly status: number
  readonly headers: OutgoingHttpHeaders
  readonly pieces: Iterable<Uint8Array> | Stream.Stream<Uint8Array>
  /** The delay before each piece but the first. */
  readonly pace: Duration.DurationInput
}

export const json = (status: number, body?: unknown, headers: OutgoingHttpHeaders = {}): Answer => {
  if (body === undefined) return { status, headers, pieces: [], pace: 0 }
  const bytes = Buffer.from(JSON.stringify(body))
  return {
    status,
    headers: { "content-type": "application/json", "content-length": bytes.length, ...headers },
    pieces: [bytes],
    pace: 0
  }
}

export const refusal = (refused: Refused): Answer => json(refused.status, { error: refused.message }, refused.headers)

/** The answer without the second half of its JSON. */
export const truncated = (answer: Answer): Answer => {
  if (!(Symbol.iterator in answer.pieces)) return answer
  const bytes = Buffer.concat([...answer.pieces])
  const half = bytes.subarray(0, Math.floor(bytes.length / 2))
  return { ...answer, headers: { ...answer.headers, "content-length": half.length }, pieces: [half] }
}

/** The same bytes in pieces of the given sizes, in rotation. */
export const cut = function* (
  pieces: Iterable<Uint8Array>,
  sizes: readonly [number, ...Array<number>]
): Generator<Uint8Array> {
  let kept: Uint8Array = Buffer.alloc(0)
  let i = 0
  const next = () => Math.max(1, sizes[i % sizes.length]!)
  for (const piece of pieces) {
    kept = kept.length === 0 ? piece : Buffer.concat([kept, piece])
    for (let size = next(); kept.length >= size; size = next()) {
      yield kept.subarray(0, size)
      kept = kept.subarray(size)
      i++
    }
  }
  if (kept.length > 0) yield kept
}

const write = (response: ServerResponse, bytes: Uint8Array): Effect.Effect<void> =>
  Effect.async(resume => {
    response.write(bytes, () => resume(Effect.void))
  })

/**
 * Sends an answer with the faults of its delivery. Each piece is written to the network before the next one is made.
 */
export const deliver = (
  response: ServerResponse,
  answer: Answer,
  { drop, drip }: Pick<Delivery, "drop" | "drip">
): Effect.Effect<void> =>
  Effect.gen(function* () {
    response.writeHead(answer.status, answer.headers)
    response.flushHeaders()
    if (!(Symbol.iterator in answer.pieces)) return yield* deliverStream(response, answer.pieces, drop?.after)
    const wait = drip === undefined ? Duration.decode(answer.pace) : Duration.millis(drip.everyMillis)
    const pieces = drip === undefined ? answer.pieces : cut(answer.pieces, [drip.bytes])
    let left = drop?.after ?? Number.POSITIVE_INFINITY
    let first = drip === undefined
    for (const piece of pieces) {
      if (left <= 0) break
      if (!first && Duration.toMillis(wait) > 0) yield* Effect.sleep(wait)
      first = false
      yield* write(response, piece.subarray(0, left))
      yield* yieldToEventLoop
      left -= piece.length
    }
    if (drop === undefined || left > 0) {
      response.end()
    } else {
      // The headers are written in the next iteration of the event loop.
      yield* yieldToEventLoop
      response.socket?.destroy()
    }
  })

/** Sends pieces as they come, and breaks off after a number of bytes. */
const deliverStream = (
  response: ServerResponse,
  pieces: Stream.Stream<Uint8Array>,
  after = Number.POSITIVE_INFINITY
): Effect.Effect<void> =>
  Effect.suspend(() => {
    let left = after
    const sent = Stream.runForEachWhile(pieces, piece =>
      Effect.map(write(response, piece.subarray(0, left)), () => {
        left -= piece.length
        return left > 0
      })
    )
    return Effect.map(sent, () => void (left > 0 ? response.end() : response.socket?.destroy()))
  })

/** Interrupts the work on an answer when its client disconnects. */
export const endWith = (response: ServerResponse, work: Fiber.RuntimeFiber<void>): void => {
  response.once("close", () => work.unsafeInterruptAsFork(FiberId.none))
  // Writes may fail until the work has ended.
  response.on("error", () => {})
}

/** Refuses a request whose bearer is not the key, if there is a key. */
export const authorize = (
  request: IncomingMessage,
  key: Redacted.Redacted | undefined
): Effect.Effect<void, Refused> => {
  const [scheme, token] = (request.headers.authorization ?? "").split(" ")
  if (key === undefined || (scheme?.toLowerCase() === "bearer" && token === Redacted.value(key))) return Effect.void
  return Effect.fail(new Refused({ status: 401, message: "Unauthorized" }))
}

/** The decoded JSON body of a request; 413 above `bound` bytes, 400 with the reason if it is invalid. */
export const decodeBody = <A, I>(
  request: IncomingMessage,
  bound: number,
  schema: Schema.Schema<A, I>
): Effect.Effect<A, Refused> =>
  Effect.gen(function* () {
    const chunks: Array<Buffer> = []
    let size = 0
    yield* Stream.fromAsyncIterable<Buffer, unknown>(request, error => error).pipe(
      Stream.runForEach(chunk =>
        Effect.sync(() => {
          size += chunk.length
          if (size <= bound) chunks.push(chunk)
        })
      ),
      // The client has disconnected, which interrupts this fiber.
      Effect.catchAll(() => Effect.never)
    )
    if (size > bound) {
      return yield* new Refused({ status: 413, message: `A body of ${size} bytes is over the limit of ${bound}` })
    }
    return yield* Effect.mapError(
      Schema.decodeUnknown(Schema.parseJson(schema))(Buffer.concat(chunks).toString("utf8")),
      error => new Refused({ status: 400, message: error.message })
    )
  })

/** Maximum number of connections. Others are closed as they arrive. */
const maxConnections = 2000

interface Handlers {
  readonly request: (request: http.IncomingMessage, response: http.ServerResponse) => void
  readonly upgrade: (request: http.IncomingMessage, socket: Duplex, head: Buffer) => void
}

/** A server on a port of 127.0.0.1 that can be made to refuse connections and to accept them again. */
export interface Listener {
  /** The address, without a slash at its end; it stays the same while connections are refused. */
  readonly url: string
  /**
   * Refuses new connections as if no process listened, or accepts them again. A refusal also closes idle connections;
   * those in use continue.
   */
  readonly refuse: (refused: boolean) => Effect.Effect<void, ListenFailed>
  readonly isRefusing: () => boolean
}

const host = "127.0.0.1"

const listen = (server: http.Server, port: number): Effect.Effect<number, ListenFailed> =>
  Effect.async(resume => {
    const failed = (error: Error) => resume(listenFailed({ host, port }, error))
    server.once("error", failed)
    server.listen(port, host, () => {
      server.off("error", failed)
      resume(Effect.succeed((server.address() as AddressInfo).port))
    })
  })

/** Listens until the scope closes, which cuts every connection. */
export const listener = (port: number, handlers: Handlers): Effect.Effect<Listener, ListenFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const server = http.createServer(handlers.request)
    server.maxConnections = maxConnections
    server.on("upgrade", handlers.upgrade)
    const sockets = new Set<Socket>()
    server.on("connection", socket => {
      sockets.add(socket)
      socket.once("close", () => sockets.delete(socket))
    })
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        if (server.listening) server.close()
        for (const socket of sockets) socket.destroy()
      })
    )
    const taken = yield* listen(server, port)
    const refuse = (refused: boolean) =>
      Effect.suspend(() => {
        if (refused === !server.listening) return Effect.void
        if (!refused) return Effect.asVoid(listen(server, taken))
        server.close()
        return Effect.void
      })
    return { url: `http://${host}:${taken}`, refuse, isRefusing: () => !server.listening }
  })

/** A request to become a WebSocket. */
export interface Upgrade {
  /** The bytes that the client has sent right after the handshake. */
  readonly head: Buffer
  /** Takes the connection. The caller must answer on it. */
  readonly take: () => Duplex
}

export interface RoutedRequest extends Call {
  readonly request: IncomingMessage
  readonly query: URLSearchParams
  readonly plan: Plan
  readonly upgrade: Upgrade | undefined
}

export interface SimulatedService {
  readonly service: Service
  readonly key: Redacted.Redacted | undefined
  /** Handles a request; without an answer if it took the upgrade. */
  readonly handle: (request: RoutedRequest) => Effect.Effect<Answer | undefined, Refused>
}

const notFound = new Refused({ status: 404, message: "Not found" })

const injected = ({ status, retryAfter }: Extract<Plan["instead"], { kind: "status" }>): Answer =>
  json(
    status,
    { error: `Injected status ${status}` },
    {
      ...(retryAfter === undefined ? {} : { "retry-after": String(retryAfter) }),
      // Detects a client that follows redirects.
      ...(status < 400 ? { location: "/redirected" } : {})
    }
  )

const isHealth = ({ operation }: Call): boolean => operation === "platform_health" || operation === "inference_health"

/** Handles a request without the faults that replace its handling. */
const handle = ({ handle, key }: SimulatedService, routed: RoutedRequest): Effect.Effect<Answer | undefined> =>
  Effect.zipRight(isHealth(routed) ? Effect.void : authorize(routed.request, key), handle(routed)).pipe(
    Effect.catchTag("Refused", refused => Effect.succeed(refusal(refused))),
    Effect.catchAllCause(cause =>
      Cause.isInterruptedOnly(cause)
        ? Effect.interrupt
        : Effect.as(Effect.logError("The simulator failed", cause), json(500, { error: "The simulator failed" }))
    )
  )

/** Handles the requests of one service, each in a fiber that is interrupted when its client disconnects. */
export const handlers = (
  played: SimulatedService,
  faults: FaultRules,
  traffic: TrafficLog
): Effect.Effect<Handlers, never, Scope.Scope> =>
  Effect.map(FiberSet.makeRuntime<never>(), run => {
    const serve = (request: IncomingMessage, response: ServerResponse, upgrade: RoutedRequest["upgrade"]) =>
      Effect.gen(function* () {
        // `URL` is not used: it would remove dot segments, which clients must not send.
        const [path = "", query = ""] = (request.url ?? "").split("?", 2)
        const call = callOf(played.service, request.method ?? "", path)
        if (call === undefined) {
          traffic.unknownRequest()
          return yield* deliver(response, refusal(notFound), noFaults)
        }
        traffic.request(call.operation, request)
        const plan = yield* faults.plan(call.operation)
        if (plan.latencyMillis > 0) yield* Effect.sleep(plan.latencyMillis)
        if (plan.instead?.kind === "hang") return yield* Effect.never
        if (plan.instead?.kind === "reset") {
          request.socket.resetAndDestroy()
          return yield* Effect.void
        }
        if (plan.instead?.kind === "status") return yield* deliver(response, injected(plan.instead), plan)
        const answer = yield* handle(played, { ...call, request, query: new URLSearchParams(query), plan, upgrade })
        if (answer === undefined) return yield* Effect.void
        const isTruncated = plan.malformed && answer.headers["content-type"] === "application/json"
        return yield* deliver(response, isTruncated ? truncated(answer) : answer, plan)
      })

    return {
      request: (request, response) => endWith(response, run(serve(request, response, undefined))),
      upgrade: (request, socket, head) => {
        if (!(socket instanceof Socket)) return void socket.destroy()
        // A refused handshake is answered like other requests.
        const response = new ServerResponse(request)
        response.shouldKeepAlive = false
        response.assignSocket(socket)
        response.once("finish", () => socket.end())
        socket.on("error", () => socket.destroy())
        const take = () => {
          response.detachSocket(socket)
          return socket
        }
        endWith(response, run(serve(request, response, { head, take })))
      }
    }
  })
