/**
 * The WebSocket of the gateway's clients.
 */
import * as Headers from "@effect/platform/Headers"
import * as HttpTraceContext from "@effect/platform/HttpTraceContext"
import { Config, type Context, Duration, Effect, Either, FiberSet, Layer, Option, Redacted, Scope } from "effect"
import * as DebugLog from "../base/Observability/DebugLog.ts"
import * as MetricTags from "../base/Observability/MetricTags.ts"
import { Tracer } from "../base/Observability/Tracer.ts"
import * as Setting from "../base/Setting.ts"
import * as Supervision from "../base/Supervision.ts"
import { type ApiError, Forbidden, ServiceUnavailable, statusOf, Unauthorized } from "../Http/ApiError.ts"
import { DrainingSignal } from "../Http/DrainingSignal.ts"
import { bearersOf, offeredBy, subprotocol } from "../Http/HeaderFields.ts"
import * as WebSocket from "../Http/WebSocket.ts"
import type { HandshakeHeaders } from "./Api.ts"
import { Authentication, type Identity } from "./Authentication.ts"
import { Conversations } from "./Conversations.ts"
import { FairPool } from "./FairPool.ts"
import * as Forwarding from "./Forwarding.ts"
import { type CloseCode, closeCodes } from "./Protocol/Codes.ts"
import { frameBytes } from "./Protocol/Limits.ts"
import { makeFileMemory } from "./Requests.ts"
import { Sessions } from "./Sessions.ts"
import { ClientConnection, type Shared } from "./Socket/ClientConnection.ts"
import { type Handshake, Socket } from "./Socket/Endpoints.ts"
import { makeReplays } from "./Socket/Feed.ts"

/** The limits of connections. */
export interface Settings {
  /** Maximum number of gateway connections, for all tenants together. Above it a handshake is refused with 503. */
  readonly connections: number
  /**
   * Unsent bytes of one connection above which it receives no events and its requests are not read. The memory of a
   * client is bounded by this and one answer.
   */
  readonly unsentBytes: number
  /** Maximum bytes of unsent answers to file calls, and of unsent conversations, for all clients together. */
  readonly fileBytes: number
}

/** The limits unless configured. */
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
      "Maximum bytes of files and conversations that are being sent to all clients together; each counts as 32 MiB until its size is known",
    default: defaults.fileBytes,
    min: 64 * 1024 * 1024,
    max: 1024 ** 4
  })
})

/** In milliseconds. */
export const timing = {
  pingInterval: 25_000,
  pongTimeout: 10_000,
  /**
   * While the service drains, connections are closed over this interval, so that clients do not all reconnect at once.
   */
  drainInterval: 2_000
} as const

/** How long the authentication of a client may take. */
const handshakeTimeout = Duration.seconds(10)

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

const unauthorized = (error: string) => new Unauthorized({ error, headers: { "www-authenticate": "Bearer" } })

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
        return yield* new Forbidden({ error: "This origin may not connect" })
      }
      if (this.count > this.limit) return yield* ServiceUnavailable.later(`${this.count} handshakes are in progress`)
      const token = tokenOf(headers, incoming.authorization)
      if (Either.isLeft(token)) return yield* unauthorized(token.left)
      const identity = yield* this.authenticate(token.right, incoming)
      // Checked last: an ordinary request shows why a handshake is refused, which browsers hide.
      if (incoming.upgradeProblem !== undefined) return yield* WebSocket.upgradeFailed(incoming.upgradeProblem)
      return identity
    })
  }

  private authenticate(token: Option.Option<Redacted.Redacted>, incoming: Handshake["incoming"]) {
    return this.authentication.identify(token, incoming).pipe(
      Effect.catchTags({
        Unauthorized: ({ message }) => unauthorized(message),
        Refused: ({ message }) => new Forbidden({ error: message }),
        AuthenticationUnavailable: ({ message }) => ServiceUnavailable.later(message)
      }),
      Effect.timeoutFail({
        duration: handshakeTimeout,
        onTimeout: () => ServiceUnavailable.later("The credential could not be verified in time")
      })
    )
  }
}

/** How long requests may take to end after their interruption. */
const interruptionTimeout = Duration.seconds(1)

/** The scope of the requests. It does not wait for those that cannot be interrupted in time. */
const work = Effect.acquireRelease(Scope.make(), (scope, exit) =>
  Supervision.within(interruptionTimeout, Scope.close(scope, exit))
)

const closeOf = ({ code, name }: CloseCode): WebSocket.Close => ({ code, reason: name })

/** Connects a client if there is a slot for its tenant, of which the pool has some. */
const acceptBy = (
  slots: FairPool,
  capacity: number,
  shared: Shared,
  identity: Identity,
  headers: HandshakeHeaders
): WebSocket.Upgrade["accept"] => {
  const parent = Option.getOrUndefined(HttpTraceContext.fromHeaders(Headers.fromInput(headers)))
  return connect => {
    const slot = slots.take(identity.tenant, 1)
    if (slot === undefined) {
      return ServiceUnavailable.later(`There are ${slots.used} connections; the limit is ${capacity}`)
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

const make = (settings: Settings) =>
  Effect.gen(function* () {
    const sessions = yield* Sessions
    const tracer = yield* Tracer
    const clock = yield* Effect.clock
    const run = yield* Scope.extend(FiberSet.makeRuntime<never>(), yield* work)
    const capacity = settings.connections
    // The newest connection of the tenant that has the most makes room for another tenant's, so that the oldest are kept.
    const slots = new FairPool({ name: "connections", capacity, reclaimFirst: "newest" })
    const handshakes = new Handshakes(yield* Authentication, yield* DrainingSignal, capacity)
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
      conversations: yield* Conversations,
      execute: yield* Forwarding.make,
      traceId: tracer.currentTraceId,
      replays: yield* makeReplays,
      now: () => clock.unsafeCurrentTimeMillis(),
      monotonic: connections.now,
      run,
      files: makeFileMemory(settings.fileBytes),
      debug: yield* DebugLog.make,
      tags: yield* MetricTags.current
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
          accept: acceptBy(slots, capacity, shared, identity, handshake.headers)
        })),
      connections: () => connections.size
    })
  })

/** Accepts clients until the scope closes. When draining begins, their connections are closed over two seconds. */
export const layer = (
  settings: Settings
): Layer.Layer<Socket, never, Sessions | Conversations | Authentication | Tracer | DrainingSignal> =>
  Layer.scoped(Socket, make(settings))
