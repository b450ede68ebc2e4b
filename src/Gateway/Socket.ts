/**
 * The WebSocket of the gateway's clients.
 */
import * as Headers from "@effect/platform/Headers"
import * as HttpTraceContext from "@effect/platform/HttpTraceContext"
import { type Context, Duration, Effect, FiberSet, Layer, Option, Scope } from "effect"
import { Tracer } from "../base/Observability/Tracer.ts"
import * as Supervision from "../base/Supervision.ts"
import { type ApiError, ServiceUnavailable, statusOf } from "../Http/ApiError.ts"
import { DrainingSignal } from "../Http/DrainingSignal.ts"
import { offeredBy, subprotocol } from "../Http/HeaderFields.ts"
import * as WebSocket from "../Http/WebSocket.ts"
import type { HandshakeHeaders } from "./Api.ts"
import { Authentication, type Identity } from "./Authentication.ts"
import { foreignOrigin, identify, tokenOf } from "./Clients/Credentials.ts"
import { Clients, type ClientsShape, type Settings } from "./Clients.ts"
import { Conversations } from "./Conversations.ts"
import { type CloseCode, closeCodes } from "./Protocol/Codes.ts"
import { frameBytes } from "./Protocol/Limits.ts"
import { makeFileMemory } from "./Requests.ts"
import { ClientConnection, type Shared } from "./Socket/ClientConnection.ts"
import { type Handshake, Socket } from "./Socket/Endpoints.ts"

/** In milliseconds. */
export const timing = {
  pingInterval: 25_000,
  pongTimeout: 10_000,
  /**
   * While the service drains, connections are closed over this interval, so that clients do not all reconnect at once.
   */
  drainInterval: 2_000
} as const

const subprotocolsOf = (headers: HandshakeHeaders) => offeredBy(headers["sec-websocket-protocol"])

/** Whether the client offers no subprotocols or ours. */
const acceptsSubprotocol = (headers: HandshakeHeaders): boolean => {
  const offered = subprotocolsOf(headers)
  return offered.length === 0 || offered.includes(subprotocol)
}

/** Decides which clients may connect, before their handshakes are answered. */
class Handshakes {
  private count = 0

  constructor(
    private readonly authentication: Context.Tag.Service<Authentication>,
    private readonly draining: Pick<Context.Tag.Service<DrainingSignal>, "hasStarted">,
    /** Maximum number of handshakes. The tenant is not known before authentication, so all tenants share it. */
    private readonly limit: number
  ) {}

  /** The identity of a client that may connect, or the answer that refuses it. */
  identify(handshake: Handshake): Effect.Effect<Identity, ApiError> {
    return Effect.suspend(() => {
      this.count++
      return this.admit(handshake)
    }).pipe(
      Effect.ensuring(
        Effect.sync(() => {
          this.count--
        })
      ),
      Effect.tapError(refusal =>
        Effect.annotateLogs(Effect.logDebug("A client was refused"), {
          status: statusOf(refusal),
          reason: refusal.error
        })
      )
    )
  }

  private admit({ headers, incoming }: Handshake): Effect.Effect<Identity, ApiError> {
    return Effect.gen(this, function* () {
      if (!acceptsSubprotocol(headers)) return yield* WebSocket.upgradeFailed(`the subprotocol is ${subprotocol}`)
      if (this.draining.hasStarted()) return yield* ServiceUnavailable.later("The service is shutting down")
      if (!this.authentication.admits(headers.origin, headers.host)) {
        return yield* foreignOrigin()
      }
      if (this.count > this.limit) return yield* ServiceUnavailable.later(`${this.count} handshakes are in progress`)
      const isPresent = headers.authorization !== undefined
      const token = tokenOf(incoming.authorization, isPresent, subprotocolsOf(headers))
      const identity = yield* identify(this.authentication, token, incoming)
      // Checked last: an ordinary request shows why a handshake is refused, which browsers hide.
      if (incoming.upgradeProblem !== undefined) return yield* WebSocket.upgradeFailed(incoming.upgradeProblem)
      return identity
    })
  }
}

/** How long requests may take to end after their interruption. */
const interruptionTimeout = Duration.seconds(1)

/** The scope of the requests. It does not wait for those that cannot be interrupted in time. */
const work = Effect.acquireRelease(Scope.make(), (scope, exit) =>
  Supervision.within(interruptionTimeout, Scope.close(scope, exit))
)

const closeOf = ({ code, name }: CloseCode): WebSocket.Close => ({ code, reason: name })

/** Connects a client if there is a slot for its tenant. */
const acceptBy = (
  takeSlot: ClientsShape["takeSlot"],
  shared: Shared,
  identity: Identity,
  headers: HandshakeHeaders
): WebSocket.Upgrade["accept"] => {
  const parent = Option.getOrUndefined(HttpTraceContext.fromHeaders(Headers.fromInput(headers)))
  return connect => {
    const slot = takeSlot(identity.tenant)
    if (slot instanceof ServiceUnavailable) return slot
    let failure: ApiError | undefined
    try {
      failure = connect(connection => new ClientConnection(connection, { identity, parent }, slot, shared))
    } catch (error) {
      slot.release()
      throw error
    }
    if (failure !== undefined) slot.release()
    return failure
  }
}

const make = (settings: Settings) =>
  Effect.gen(function* () {
    const { takeSlot, ...clients } = yield* Clients
    const tracer = yield* Tracer
    const clock = yield* Effect.clock
    const run = yield* Scope.extend(FiberSet.makeRuntime<never>(), yield* work)
    const handshakes = new Handshakes(yield* Authentication, yield* DrainingSignal, settings.connections)
    const connections = yield* WebSocket.connectionSet({
      messageBytes: frameBytes,
      subprotocol,
      unsentBytes: settings.unsentBytes,
      pingInterval: timing.pingInterval,
      pongTimeout: timing.pongTimeout,
      slow: closeOf(closeCodes.slowConsumer),
      silent: closeOf(closeCodes.idle),
      goingAway: closeOf(closeCodes.goingAway),
      drainInterval: timing.drainInterval
    })
    const shared: Shared = {
      ...clients,
      conversations: yield* Conversations,
      traceId: tracer.currentTraceId,
      now: () => clock.unsafeCurrentTimeMillis(),
      monotonic: connections.now,
      run,
      files: makeFileMemory(settings.fileBytes)
    }
    yield* Supervision.tickScoped(
      "memory of file calls",
      "1 second",
      connections,
      // Clients become stalled as time passes.
      Effect.sync(() => shared.files.serve())
    )
    return Socket.of({
      connect: handshake =>
        Effect.map(handshakes.identify(handshake), identity => ({
          connections,
          accept: acceptBy(takeSlot, shared, identity, handshake.headers)
        })),
      connections: () => connections.size
    })
  })

/** Accepts clients until the scope closes. When draining begins, their connections are closed over two seconds. */
export const layer = (
  settings: Settings
): Layer.Layer<Socket, never, Clients | Conversations | Authentication | Tracer | DrainingSignal> =>
  Layer.scoped(Socket, make(settings))
