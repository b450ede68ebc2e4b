/**
 * The WebSocket of the gateway's clients.
 */
import * as Headers from "@effect/platform/Headers"
import * as HttpTraceContext from "@effect/platform/HttpTraceContext"
import { Config, Duration, Effect, Either, FiberSet, Layer, Option, Redacted, Scope } from "effect"
import { type ApiError, Forbidden, ServiceUnavailable, statusOf, Unauthorized } from "../Http/ApiError.ts"
import { DrainingSignal } from "../Http/DrainingSignal.ts"
import { bearersOf, offeredBy, subprotocol } from "../Http/WebSocket/Subprotocol.ts"
import * as WebSocket from "../Http/WebSocket.ts"
import * as MetricTags from "../MetricTags.ts"
import * as DebugLog from "../Observability/DebugLog.ts"
import { Tracer } from "../Observability/Tracer.ts"
import * as Setting from "../Setting.ts"
import * as Supervision from "../Supervision.ts"
import type { HandshakeHeaders } from "./Api.ts"
import { Authentication, type Identity } from "./Authentication.ts"
import { type Handshake, Socket } from "./Endpoints.ts"
import { FileCalls } from "./FileCalls.ts"
import * as Forwarding from "./Forwarding.ts"
import { type CloseCode, closeCodes } from "./Protocol/CloseCode.ts"
import { frameBytes } from "./Protocol/Limits.ts"
import { Sessions } from "./Sessions.ts"
import { ClientConnection, type Shared } from "./Socket/ClientConnection.ts"
import { ConnectionSlots } from "./Socket/ConnectionSlots.ts"
import * as Replays from "./Socket/Replays.ts"

/** The limits of connections. */
export interface Settings {
  /** Maximum number of gateway connections, for all tenants together. Above it a handshake is refused with 503. */
  readonly connections: number
  /**
   * Unsent bytes of one connection above which it receives no events and its requests are not read. The memory of a
   * client is bounded by this and one answer.
   */
  readonly unsentBytes: number
  /** Maximum bytes of unsent answers to file calls, for all clients together. */
  readonly fileBytes: number
}

export const defaults: Settings = { connections: 10_000, unsentBytes: 1024 * 1024, fileBytes: 512 * 1024 * 1024 }

/** The limits as configuration variables. */
export const config: Config.Config<Settings> = Config.all({
  connections: Setting.integer("LIMIT_CONNECTIONS", {
    description:
      "Maximum number of gateway WebSockets (`/ws`) at a time; those of the change feed count towards LIMIT_FOLLOWERS",
    default: defaults.connections,
    min: 1,
    max: 1_000_000
  }),
  unsentBytes: Setting.integer("LIMIT_CLIENT_UNSENT_BYTES", {
    description: "Unsent bytes of a gateway WebSocket above which it receives no events",
    default: defaults.unsentBytes,
    min: 1024,
    max: 64 * 1024 * 1024
  }),
  fileBytes: Setting.integer("LIMIT_FILE_BYTES", {
    description:
      "Maximum bytes of files that are being sent to all clients together; a call counts as 32 MiB until it is answered",
    default: defaults.fileBytes,
    min: 64 * 1024 * 1024,
    max: 1024 ** 4
  })
})

/** How long the authentication of a client may take. */
const handshakeTimeout = Duration.seconds(10)

/** In milliseconds. */
export const timing = {
  pingInterval: 25_000,
  pongTimeout: 10_000,
  /**
   * While the service drains, connections are closed over this interval, so that clients do not all reconnect at once.
   */
  drainInterval: 2_000
} as const

/** How long requests may take to end after their interruption. */
const interruptionTimeout = Duration.seconds(1)

/** The scope of the requests. It does not wait for those that cannot be interrupted in time. */
const work = Effect.acquireRelease(Scope.make(), (scope, exit) =>
  Supervision.within(interruptionTimeout, Scope.close(scope, exit))
)

const bearer = /^bearer +([^\s]+) *$/i

const subprotocolsOf = (headers: HandshakeHeaders) => offeredBy(headers["sec-websocket-protocol"])

/** Whether the client offers no subprotocols or ours. */
const acceptsSubprotocol = (headers: HandshakeHeaders): boolean => {
  const offered = subprotocolsOf(headers)
  return offered.length === 0 || offered.includes(subprotocol)
}

/**
 * The token of a request, or why it is refused. Two tokens are refused even if they are equal: a proxy that checks the
 * request must check the same token.
 *
 * @param authorization the header's value; `undefined` if it is repeated
 */
const tokenOf = (
  headers: HandshakeHeaders,
  authorization: string | undefined
): Either.Either<Option.Option<Redacted.Redacted>, string> => {
  const offered = subprotocolsOf(headers)
  const named = bearersOf(offered)
  if (named.length > 0 && !offered.includes(subprotocol)) {
    return Either.left(`A bearer subprotocol requires the subprotocol ${subprotocol}`)
  }
  if (headers.authorization === undefined && named.length === 0) return Either.right(Option.none())
  if (headers.authorization !== undefined && authorization === undefined) {
    return Either.left("The Authorization header is repeated")
  }
  const headed = authorization === undefined ? undefined : bearer.exec(authorization)?.[1]
  if (authorization !== undefined && headed === undefined) {
    return Either.left("The Authorization header must be a bearer token")
  }
  const tokens = headed === undefined ? named : [headed, ...named]
  return tokens.length === 1 && tokens[0] !== ""
    ? Either.right(Option.some(Redacted.make(tokens[0]!)))
    : Either.left("There must be exactly one bearer token")
}

const closeOf = ({ code, name }: CloseCode): WebSocket.Close => ({ code, reason: name })

const unauthorized = (error: string) => new Unauthorized({ error, headers: { "www-authenticate": "Bearer" } })

const unavailable = (error: string) => new ServiceUnavailable({ error, headers: { "retry-after": "1" } })

const make = (settings: Settings) =>
  Effect.gen(function* () {
    const sessions = yield* Sessions
    const authentication = yield* Authentication
    const tracer = yield* Tracer
    const draining = yield* DrainingSignal
    const clock = yield* Effect.clock
    const run = yield* Scope.extend(FiberSet.makeRuntime<never>(), yield* work)
    const slots = new ConnectionSlots(settings.connections)
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
      sessions,
      execute: yield* Forwarding.make,
      traceId: tracer.currentTraceId,
      replays: yield* Replays.make,
      now: () => clock.unsafeCurrentTimeMillis(),
      monotonic: connections.now,
      run,
      files: new FileCalls(settings.fileBytes),
      debug: yield* DebugLog.make,
      tags: yield* MetricTags.current
    }
    let handshakes = 0

    const identify = ({ headers, incoming }: Handshake): Effect.Effect<Identity, ApiError> =>
      Effect.gen(function* () {
        if (!acceptsSubprotocol(headers)) return yield* WebSocket.upgradeFailed(`the subprotocol is ${subprotocol}`)
        if (draining.hasStarted()) return yield* unavailable("The service is shutting down")
        if (!authentication.admits(headers.origin, headers.host)) {
          return yield* new Forbidden({ error: "This origin may not connect" })
        }
        // The tenant is not known before authentication, so handshakes have a separate limit.
        if (handshakes > settings.connections) return yield* unavailable(`${handshakes} handshakes are in progress`)
        const token = tokenOf(headers, incoming.authorization)
        if (token._tag === "Left") return yield* unauthorized(token.left)
        const identity = yield* authentication.identify(token.right, incoming).pipe(
          Effect.catchTags({
            Unauthorized: ({ message }) => unauthorized(message),
            Refused: ({ message }) => new Forbidden({ error: message }),
            AuthenticationUnavailable: ({ message }) => unavailable(message)
          }),
          Effect.timeoutFail({
            duration: handshakeTimeout,
            onTimeout: () => unavailable("The credential could not be verified in time")
          })
        )
        // Checked last: an ordinary request shows why a handshake is refused, which browsers hide.
        if (incoming.upgradeProblem !== undefined) return yield* WebSocket.upgradeFailed(incoming.upgradeProblem)
        return identity
      })

    /** Connects a client if there is a slot for its tenant. */
    const accept = (identity: Identity, headers: HandshakeHeaders): WebSocket.Upgrade["accept"] => {
      const parent = Option.getOrUndefined(HttpTraceContext.fromHeaders(Headers.fromInput(headers)))
      return connect => {
        const slot = slots.take(identity.tenant)
        if (slot === undefined) {
          return unavailable(`There are ${slots.used} connections; the limit is ${slots.capacity}`)
        }
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

    yield* Supervision.tickScoped(
      "memory of file calls",
      "1 second",
      connections,
      Effect.sync(() => shared.files.tick())
    )

    return Socket.of({
      connect: handshake =>
        Effect.suspend(() => {
          handshakes++
          return identify(handshake)
        }).pipe(
          Effect.ensuring(
            Effect.sync(() => {
              handshakes--
            })
          ),
          Effect.tapError(refusal =>
            Effect.annotateLogs(Effect.logDebug("A client was refused"), {
              status: statusOf(refusal),
              reason: refusal.error
            })
          ),
          Effect.map(identity => ({ connections, accept: accept(identity, handshake.headers) }))
        ),
      connections: () => connections.size
    })
  })

/** Accepts clients until the scope closes. When draining begins, their connections are closed over two seconds. */
export const layer = (
  settings: Settings
): Layer.Layer<Socket, never, Sessions | Authentication | Tracer | DrainingSignal> =>
  Layer.scoped(Socket, make(settings))
