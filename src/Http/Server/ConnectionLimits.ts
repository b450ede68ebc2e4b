import { Config } from "effect"
import * as Setting from "../../Setting.ts"

/** What connections may cost at most, all together. */
export interface ConnectionLimits {
  /** Connections at a time, WebSockets included. */
  readonly connections: number
  /** Bytes that may wait for clients, over all connections. */
  readonly unsentBytes: number
  /** Bytes of request bodies that may be held, over all connections. */
  readonly heldBodyBytes: number
}

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
