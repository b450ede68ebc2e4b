import { IncomingMessage } from "node:http"
import type { Duplex } from "node:stream"
import type * as HttpServerRequest from "@effect/platform/HttpServerRequest"

/** A request to become a WebSocket, as `node:http` hands it over in its `upgrade` event. */
export interface Upgrade {
  readonly request: IncomingMessage
  readonly socket: Duplex
  /** What the client sent behind the handshake already. */
  readonly head: Buffer
}

const pending = new WeakMap<IncomingMessage, Upgrade>()

/** Keeps what only the `upgrade` event tells, for the handler that comes to serve the request. */
export const remember = (request: IncomingMessage, socket: Duplex, head: Buffer): void => {
  pending.set(request, { request, socket, head })
}

/** The upgrade that a request asks for, or `undefined` where it is an ordinary one. */
export const upgradeOf = (request: HttpServerRequest.HttpServerRequest): Upgrade | undefined =>
  request.source instanceof IncomingMessage ? pending.get(request.source) : undefined
