/**
 * Who sends a request: what an application tells of it, by its own authentication or by API keys.
 */
import { Context, type Effect } from "effect"
import type { Forbidden, ServiceUnavailable, Unauthorized } from "./ApiError.ts"

/** What a request may do: only read, or read and write. */
export type Access = "read" | "write"

/** Who sends a request. */
export interface IdentityShape {
  readonly access: Access
  /** Recorded as the author of what the request writes, whatever author the client names. */
  readonly actor?: string | undefined
  /**
   * Limits the request to the entries and changes of one tenant: the namespaces `tenant:<tenant>` and
   * `tenant:<tenant>/…`. The gateway requires one.
   */
  readonly tenant?: string | undefined
  /** When the credential expires, in epoch milliseconds. The gateway closes a connection then. */
  readonly expiresAt?: number | undefined
}

/** Who sends the current request; provided to the handlers of endpoints that require access. */
export class Identity extends Context.Tag("causeway/Identity")<Identity, IdentityShape>() {}

/** What a request tells of its sender. */
export interface Credentials {
  /**
   * The value of `Authorization`, or what a browser's WebSocket sends in its place as a subprotocol. `undefined` without
   * one and with several.
   */
  readonly credential: string | undefined
  readonly method: string
  /** The request's target as the client wrote it: the path and the query. */
  readonly url: string
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>
  readonly remoteAddress: string | undefined
}

/** What a request is answered that is not let in; 503 where that cannot be found out at present. */
export type Refusal = Unauthorized | Forbidden | ServiceUnavailable

/**
 * Authenticates a request. It serves ordinary requests and WebSocket handshakes alike. An effect made with `Direct` needs
 * no fiber.
 */
export type Identify<R = never> = (request: Credentials) => Effect.Effect<IdentityShape, Refusal, R>

/** Tells who sends a request. */
export class Auth extends Context.Tag("causeway/Auth")<Auth, { readonly identify: Identify }>() {}
