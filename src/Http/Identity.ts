/** The sender of a request, as an application determines it by its own authentication or by API keys. */
import { Context, type Effect } from "effect"
import type { Forbidden, ServiceUnavailable, Unauthorized } from "./ApiError.ts"

/** What a request may do: only read, or read and write. */
export type Access = "read" | "write"

/** The sender of a request. */
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

/** The sender of the current request; provided to the handlers of endpoints that require access. */
export class Identity extends Context.Tag("causeway/Identity")<Identity, IdentityShape>() {}

/** The parts of a request that identify its sender. */
export interface Credentials {
  /**
   * The value of `Authorization`, or what a browser's WebSocket sends instead as a subprotocol. `undefined` without
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

/** The answer to a request that is not admitted; 503 if that cannot be determined at present. */
export type Refusal = Unauthorized | Forbidden | ServiceUnavailable

/**
 * Authenticates an ordinary request or a WebSocket handshake. An effect made with `Direct` needs
 * no fiber.
 */
export type Identify<R = never> = (request: Credentials) => Effect.Effect<IdentityShape, Refusal, R>

/** Identifies the sender of a request. */
export class Auth extends Context.Tag("causeway/Auth")<Auth, { readonly identify: Identify }>() {}
