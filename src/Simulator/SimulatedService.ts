/**
 * A simulated service: a server that can be made to refuse connections, and whose requests have the faults of the rules.
 */

import * as http from "node:http"
import { type IncomingMessage, ServerResponse } from "node:http"
import { type AddressInfo, Socket } from "node:net"
import type { Duplex } from "node:stream"
import { Cause, Effect, FiberSet, type Redacted, Schema, type Scope } from "effect"
import * as Answer from "./Answer.ts"
import { type FaultRules, noFaults, type Plan } from "./Fault.ts"
import { type Call, callOf, type Service } from "./Operation.ts"
import type { TrafficLog } from "./TrafficLog.ts"

/** A port that could not be listened on. */
export class ListenFailed extends Schema.TaggedError<ListenFailed>()("ListenFailed", {
  port: Schema.Int,
  reason: Schema.String
}) {
  override get message(): string {
    return `Cannot listen on 127.0.0.1:${this.port}: ${this.reason}`
  }
}

/** Maximum number of connections. Others are closed as they arrive. */
const maxConnections = 2000

/** The handlers of a listener's requests. */
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

const listen = (server: http.Server, port: number): Effect.Effect<number, ListenFailed> =>
  Effect.async(resume => {
    const failed = (error: Error) => resume(Effect.fail(new ListenFailed({ port, reason: error.message })))
    server.once("error", failed)
    server.listen(port, "127.0.0.1", () => {
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
    return { url: `http://127.0.0.1:${taken}`, refuse, isRefusing: () => !server.listening }
  })

/** A request to become a WebSocket. */
export interface Upgrade {
  /** The bytes that the client has sent right after the handshake. */
  readonly head: Buffer
  /** Takes the connection. The caller must answer on it. */
  readonly take: () => Duplex
}

/** A request with a route. */
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
  readonly handle: (request: RoutedRequest) => Effect.Effect<Answer.Answer | undefined, Answer.Refused>
}

const notFound = new Answer.Refused({ status: 404, message: "Not found" })

/** The answer of a status fault. */
const injected = ({ status, retryAfter }: Extract<Plan["instead"], { kind: "status" }>): Answer.Answer =>
  Answer.json(
    status,
    { error: `Injected status ${status}` },
    {
      ...(retryAfter === undefined ? {} : { "retry-after": String(retryAfter) }),
      // Detects a client that follows redirects.
      ...(status < 400 ? { location: "/redirected" } : {})
    }
  )

const isHealth = ({ operation }: Call): boolean => operation === "platform_health" || operation === "inference_health"

/** Handles the requests of one service, each in a fiber that is interrupted when its client disconnects. */
export const handlers = (
  played: SimulatedService,
  faults: FaultRules,
  traffic: TrafficLog
): Effect.Effect<Handlers, never, Scope.Scope> =>
  Effect.gen(function* () {
    const run = yield* FiberSet.makeRuntime<never>()

    const handle = (routed: RoutedRequest) =>
      Effect.gen(function* () {
        if (!isHealth(routed)) yield* Answer.authorize(routed.request, played.key)
        return yield* played.handle(routed)
      }).pipe(
        Effect.catchTag("Refused", refused => Effect.succeed(Answer.refusal(refused))),
        Effect.catchAllCause(cause =>
          Cause.isInterruptedOnly(cause)
            ? Effect.interrupt
            : Effect.as(
                Effect.logError("The simulator failed", cause),
                Answer.json(500, { error: "The simulator failed" })
              )
        )
      )

    const serve = (request: IncomingMessage, response: ServerResponse, upgrade: RoutedRequest["upgrade"]) =>
      Effect.gen(function* () {
        // `URL` is not used: it would remove dot segments, which clients must not send.
        const [path = "", query = ""] = (request.url ?? "").split("?", 2)
        const call = callOf(played.service, request.method ?? "", path)
        if (call === undefined) {
          traffic.unknownRequest()
          return yield* Answer.deliver(response, Answer.refusal(notFound), noFaults)
        }
        traffic.request(call.operation, request)
        const plan = yield* faults.plan(call.operation)
        if (plan.latencyMillis > 0) yield* Effect.sleep(plan.latencyMillis)
        if (plan.instead?.kind === "hang") return yield* Effect.never
        if (plan.instead?.kind === "reset") {
          request.socket.resetAndDestroy()
          return yield* Effect.void
        }
        if (plan.instead?.kind === "status") return yield* Answer.deliver(response, injected(plan.instead), plan)
        const answer = yield* handle({ ...call, request, query: new URLSearchParams(query), plan, upgrade })
        if (answer === undefined) return yield* Effect.void
        const isTruncated = plan.malformed && answer.headers["content-type"] === "application/json"
        return yield* Answer.deliver(response, isTruncated ? Answer.truncated(answer) : answer, plan)
      })

    return {
      request: (request, response) => {
        Answer.endWith(response, run(serve(request, response, undefined)))
      },
      upgrade: (request, socket, head) => {
        // A refused handshake is answered like other requests.
        const response = new ServerResponse(request)
        response.shouldKeepAlive = false
        if (!(socket instanceof Socket)) {
          socket.destroy()
          return
        }
        response.assignSocket(socket)
        response.once("finish", () => socket.end())
        socket.on("error", () => socket.destroy())
        const work = run(
          serve(request, response, {
            head,
            take: () => {
              response.detachSocket(socket)
              return socket
            }
          })
        )
        Answer.endWith(response, work)
      }
    }
  })
