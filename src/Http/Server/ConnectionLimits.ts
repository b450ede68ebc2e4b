/**
 * Limits of connections: their number, their memory, and timeouts of clients.
 */
import { Config } from "effect"
import * as Setting from "../../Setting.ts"

/** Limits of all connections together. */
export interface ConnectionLimits {
  /** Connections at a time, WebSockets included. */
  readonly connections: number
  /** Bytes that may wait for clients, over all connections. */
  readonly unsentBytes: number
  /** Bytes of request bodies in memory, over all connections. */
  readonly heldBodyBytes: number
}

/** The limits unless configured. */
export const defaults: ConnectionLimits = {
  connections: 25_000,
  unsentBytes: 256 * 1024 * 1024,
  heldBodyBytes: 256 * 1024 * 1024
}

/** Each limit as a configuration variable. */
export const config: Config.Config<ConnectionLimits> = Config.all({
  connections: Setting.integer("LIMIT_HTTP_CONNECTIONS", {
    description:
      "Most connections at a time, WebSockets included; beyond it an idle one makes way, or the new one is answered 503",
    default: defaults.connections,
    min: 10,
    max: 1_000_000
  }),
  unsentBytes: Setting.integer("LIMIT_TOTAL_UNSENT_BYTES", {
    description:
      "Bytes that may wait for clients over all connections; beyond it those whose clients do not read are ended",
    default: defaults.unsentBytes,
    min: 1024 * 1024,
    max: 64 * 1024 * 1024 * 1024
  }),
  heldBodyBytes: Setting.integer("LIMIT_TOTAL_BODY_BYTES", {
    description:
      "Bytes of request bodies that may be held over all connections; beyond it those that arrive slowest are answered 503. At least LIMIT_BODY_BYTES",
    default: defaults.heldBodyBytes,
    min: 1024 * 1024,
    max: 64 * 1024 * 1024 * 1024
  })
})

/** Timeouts of connections, in milliseconds. */
export interface Timing {
  /** From the first byte of a request to the end of its headers. */
  readonly headers: number
  /** From the first byte of a request to the end of its body. */
  readonly request: number
  /** How long a connection may stay idle between two requests. */
  readonly keepAlive: number
  /** How often the limits above are checked. */
  readonly check: number
  /**
   * How long a refused connection is read from, so that the client can read the answer; the interval of checks
   * if the body of a request is still arriving.
   */
  readonly linger: number
  /** How long a client may read nothing of an answer. */
  readonly readTimeout: number
  /** How long a half-closed connection is served. */
  readonly halfOpen: number
}

/**
 * A client has 15 s to send its headers, so that slow ones cannot occupy connections. A body of 16 MiB takes 10
 * minutes on a link of 0.25 Mbit/s. Idle connections outlive the 60 s that load balancers commonly keep theirs.
 * A half-closed connection is served for 10 s, which is enough for every write. Answers have no timeout while they
 * are read: polls take a minute, and streams do not end.
 */
export const timing: Timing = {
  headers: 15_000,
  request: 600_000,
  keepAlive: 65_000,
  check: 5_000,
  linger: 1_000,
  readTimeout: 60_000,
  halfOpen: 10_000
}
