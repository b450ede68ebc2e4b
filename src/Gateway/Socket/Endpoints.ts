/**
 * The handlers of the `gateway` group, and the port that they call; `Socket.ts` implements it.
 */
import { Context, Effect } from "effect"
import type { ApiError } from "../../Http/ApiError.ts"
import * as Endpoints from "../../Http/Endpoints.ts"
import type { Credentials } from "../../Http/Identity.ts"
import * as Reply from "../../Http/Reply.ts"
import type * as WebSocket from "../../Http/WebSocket.ts"
import { GatewayGroup, type HandshakeHeaders } from "../Api.ts"

/** The handshake of a client. */
export interface Handshake {
  readonly headers: HandshakeHeaders
  readonly incoming: Pick<Endpoints.Incoming, "authorization" | "upgradeProblem"> & Credentials
}

/** Accepts connections of clients. */
export class Socket extends Context.Tag("causeway/GatewaySocket")<
  Socket,
  {
    /** Authenticates a client and upgrades its request to a WebSocket. */
    readonly connect: (handshake: Handshake) => Effect.Effect<WebSocket.Upgrade, ApiError>
    /** The current number of connections. */
    readonly connections: () => number
  }
>() {}

/** The handlers of the `gateway` group. */
export const endpoints = Endpoints.of(
  GatewayGroup,
  Effect.map(Socket, socket => ({
    connect: handshake => Effect.map(socket.connect(handshake), Reply.webSocket)
  }))
)
