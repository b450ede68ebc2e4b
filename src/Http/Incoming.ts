/**
 * Requests as handlers and authentication read them, from either server.
 */
import type { IncomingMessage } from "node:http"
import type * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import { Option } from "effect"
import type { Incoming } from "./Endpoints.ts"
import { authorizationOf, authorizationOfPlatform } from "./HeaderFields.ts"
import type { IdentityShape } from "./Identity.ts"
import { pathOf } from "./Router.ts"
import { type Handshake, handshakeOf, problemOf } from "./WebSocket/Handshake.ts"
import { credentialOf } from "./WebSocket/Subprotocol.ts"
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
    // Of a plain request there is one at most: the server has refused a second.
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

/** A request of @effect/platform. */
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
