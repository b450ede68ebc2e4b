/**
 * Limits of connections: their number, their memory, and timeouts of clients.
 */
import { Config } from "effect"
import * as Setting from "../../base/Setting.ts"

/** The limits of all connections together, unless configured. */
export const defaults = {
  /** Connections at a time, WebSockets included. */
  connections: 25_000,
  /** Bytes that may wait for clients, over all connections. */
  unsentBytes: 256 * 1024 * 1024,
  /** Bytes of request bodies in memory, over all connections. */
  heldBodyBytes: 256 * 1024 * 1024
}

/** Limits of all connections together. */
export type ConnectionLimits = Readonly<typeof defaults>

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

/**
 * The timeouts of connections, in milliseconds. Answers have none while they are read: polls take a minute, and streams
 * do not end.
 */
export const timing = {
  /** From the first byte of a request to the end of its headers: slow clients cannot occupy connections. */
  headers: 15_000,
  /** From the first byte of a request to the end of its body: 16 MiB take 10 minutes on a link of 0.25 Mbit/s. */
  request: 600_000,
  /** How long a connection may stay idle between two requests: longer than the 60 s of common load balancers. */
  keepAlive: 65_000,
  /** How often the limits above are checked. */
  check: 5_000,
  /**
   * How long a refused connection is read from, so that the client can read the answer; the interval of checks
   * if the body of a request is still arriving.
   */
  linger: 1_000,
  /** How long a client may read nothing of an answer. */
  readTimeout: 60_000,
  /** How long a half-closed connection is served, which is enough for every write. */
  halfOpen: 10_000
}

/** Timeouts of connections, in milliseconds. */
export type Timing = Readonly<typeof timing>
