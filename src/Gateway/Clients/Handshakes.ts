/** The handshakes of WebSockets: which clients may connect, and what all their connections have in common. */

import * as Headers from "@effect/platform/Headers"
import * as HttpTraceContext from "@effect/platform/HttpTraceContext"
import { type Context, Duration, Effect, type Fiber, FiberSet, Option, Scope } from "effect"
import * as Supervision from "../../base/Supervision.ts"
import { type ApiError, ServiceUnavailable, statusOf } from "../../Http/ApiError.ts"
import { DrainingSignal } from "../../Http/DrainingSignal.ts"
import type { Incoming } from "../../Http/Endpoints.ts"
import { offeredBy, subprotocol } from "../../Http/HeaderFields.ts"
import type { Credentials } from "../../Http/Identity.ts"
import * as WebSocket from "../../Http/WebSocket.ts"
import type { HandshakeHeaders } from "../Api.ts"
import { Authentication, type Identity } from "../Authentication.ts"
import { type CloseCode, closeCodes } from "../Protocol/Codes.ts"
import type { Slot } from "./ClientSocket.ts"
import { foreignOrigin, identify, tokenOf } from "./Credentials.ts"

/** In milliseconds. */
export const timing = {
  pingInterval: 25_000,
  pongTimeout: 10_000,
  /**
   * While the service drains, connections are closed over this interval, so that clients do not all reconnect at once.
   */
  drainInterval: 2_000
} as const

/** The handshake of a client. */
interface Handshake {
  readonly headers: HandshakeHeaders
  readonly incoming: Pick<Incoming, "authorization" | "upgradeProblem"> & Credentials
}

/** The span that a handshake names, if any. */
export const parentOf = ({ headers }: Pick<Handshake, "headers">) =>
  Option.getOrUndefined(HttpTraceContext.fromHeaders(Headers.fromInput(headers)))

const subprotocolsOf = (headers: HandshakeHeaders) => offeredBy(headers["sec-websocket-protocol"])

/** Whether the client offers no subprotocols or ours. */
const acceptsSubprotocol = (headers: HandshakeHeaders): boolean => {
  const offered = subprotocolsOf(headers)
  return offered.length === 0 || offered.includes(subprotocol)
}

/** Decides which clients may connect, before their handshakes are answered. */
export class Handshakes {
  private count = 0

  private constructor(
    private readonly authentication: Context.Tag.Service<Authentication>,
    private readonly draining: Pick<Context.Tag.Service<DrainingSignal>, "hasStarted">,
    private readonly limit: number
  ) {}

  /** `limit`: maximum number of handshakes. The tenant is not known before authentication, so all tenants share it. */
  static make(limit: number): Effect.Effect<Handshakes, never, Authentication | DrainingSignal> {
    return Effect.zipWith(Authentication, DrainingSignal, (authentication, draining) => {
      return new Handshakes(authentication, draining, limit)
    })
  }

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

/** Runs requests until the scope closes. */
export const makeRunner: Effect.Effect<(effect: Effect.Effect<void>) => Fiber.RuntimeFiber<void>, never, Scope.Scope> =
  Effect.flatMap(work, scope => Scope.extend(FiberSet.makeRuntime<never>(), scope))

const closeOf = ({ code, name }: CloseCode): WebSocket.Close => ({ code, reason: name })

/** The connections of one endpoint. */
export const connectionSet = (settings: Pick<WebSocket.Settings, "messageBytes" | "unsentBytes">) =>
  WebSocket.connectionSet({
    ...settings,
    subprotocol,
    pingInterval: timing.pingInterval,
    pongTimeout: timing.pongTimeout,
    slow: closeOf(closeCodes.slowConsumer),
    silent: closeOf(closeCodes.idle),
    goingAway: closeOf(closeCodes.goingAway),
    drainInterval: timing.drainInterval
  })

/** Connects a client if there is a slot for its tenant. */
export const acceptBy =
  (
    takeSlot: (tenant: string) => Slot | ServiceUnavailable,
    tenant: string,
    handlerOf: (connection: WebSocket.Connection, slot: Slot) => WebSocket.Handler
  ): WebSocket.Upgrade["accept"] =>
  connect => {
    const slot = takeSlot(tenant)
    if (slot instanceof ServiceUnavailable) return slot
    let failure: ApiError | undefined
    try {
      failure = connect(connection => handlerOf(connection, slot))
    } catch (error) {
      slot.release()
      throw error
    }
    if (failure !== undefined) slot.release()
    return failure
  }
