/** Requests of either server in the form that handlers and authentication read, and their admission. */
import type { IncomingMessage } from "node:http"
import type * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import { type Effect, Exit, Option } from "effect"
import * as Direct from "../base/Direct.ts"
import type { ApiError } from "./ApiError.ts"
import type { Guard, Incoming } from "./Endpoints.ts"
import { authorizationOf, authorizationOfPlatform, credentialOf } from "./HeaderFields.ts"
import type { IdentityShape } from "./Identity.ts"
import { pathOf } from "./Router.ts"
import { type Handshake, handshakeOf, problemOf } from "./WebSocket/Handshake.ts"
import { noHandshake } from "./WebSocket.ts"

/** A request of `node:http`. Its parts are computed when they are read: most requests need few of them. */
export class NodeIncoming implements Incoming {
  /** Set once the request is authenticated. */
  identity: IdentityShape | undefined = undefined

  /** @param target the path of the request */
  constructor(
    private readonly request: IncomingMessage,
    readonly target: string,
    private readonly handshake: Handshake | undefined
  ) {}

  get authorization(): string | undefined {
    // A plain request has at most one: the server has refused a second.
    return this.handshake === undefined ? this.request.headers.authorization : authorizationOf(this.request)
  }

  get credential(): string | undefined {
    return this.handshake === undefined ? this.request.headers.authorization : credentialOf(this.request)
  }

  get method(): string {
    return this.request.method ?? ""
  }

  get url(): string {
    return this.request.url ?? ""
  }

  get headers(): IncomingMessage["headers"] {
    return this.request.headers
  }

  get remoteAddress(): string | undefined {
    return this.request.socket.remoteAddress
  }

  get upgradeProblem(): string | undefined {
    return this.handshake === undefined ? noHandshake : problemOf(this.handshake)
  }

  get origin(): string | undefined {
    return this.request.headers.origin
  }

  get host(): string | undefined {
    return this.request.headers.host
  }
}

/**
 * Runs guards in order, and stores the sender of the request. Returns `undefined` if all have admitted it at once, else
 * an exit or an effect with the result.
 */
export const admit = (
  guards: ReadonlyArray<Guard>,
  request: NodeIncoming,
  from = 0
): Effect.Effect<void, ApiError> | undefined => {
  for (let index = from; index < guards.length; index++) {
    let admitted: ReturnType<Guard["admit"]>
    try {
      admitted = guards[index]!.admit(request)
    } catch (error) {
      return Exit.die(error)
    }
    const exit = Direct.exitOf(admitted)
    if (exit === undefined) {
      return Direct.flatMap(admitted, identity => {
        if (identity !== undefined) request.identity = identity
        return admit(guards, request, index + 1) ?? Exit.void
      })
    }
    if (Exit.isFailure(exit)) return Exit.failCause(exit.cause)
    if (exit.value !== undefined) request.identity = exit.value
  }
  return undefined
}

export const ofPlatform = (
  request: HttpServerRequest.HttpServerRequest,
  identity?: IdentityShape | undefined
): Incoming => {
  const { headers, method, originalUrl: url } = request
  const handshake = handshakeOf(request)
  const authorization = authorizationOfPlatform(request)
  return {
    identity,
    target: pathOf(url),
    authorization,
    credential: handshake === undefined ? authorization : credentialOf(handshake.request),
    method,
    url,
    headers,
    remoteAddress: Option.getOrUndefined(request.remoteAddress),
    upgradeProblem: handshake === undefined ? noHandshake : problemOf(handshake),
    origin: headers.origin,
    host: headers.host
  }
}
