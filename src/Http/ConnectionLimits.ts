/** Limits of connections: their number, their memory, and timeouts of clients. */

import { Config, Metric, MetricLabel } from "effect"
import * as MetricTags from "../base/Observability/MetricTags.ts"
import * as Setting from "../base/Setting.ts"

/** The limits of all connections together, unless configured. */
export const defaults = {
  /** Connections at a time, WebSockets included. */
  connections: 25_000,
  /** Bytes that may wait for clients, over all connections. */
  unsentBytes: 256 * 1024 * 1024,
  /** Bytes of request bodies in memory, over all connections. */
  heldBodyBytes: 256 * 1024 * 1024
}

export type ConnectionLimits = Readonly<typeof defaults>

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

export const unsent = Metric.gauge("connections_unsent_bytes", {
  description: "Bytes that wait for clients to take them, over all connections."
})

export const received = Metric.gauge("connections_body_bytes", {
  description:
    "Bytes of request bodies that are held until they are answered, and of WebSocket messages that arrive, over all connections."
})

export const refusedBodies = Metric.counter("http_bodies_refused_total", {
  description: "Request bodies that were refused while they arrived, as all together held too many bytes.",
  incremental: true
})

export const connections = Metric.gauge("http_connections", {
  description: "Connections to the HTTP port, WebSockets included."
})

export const webSockets = Metric.gauge("ws_connections_active", { description: "Current WebSocket connections." })

/**
 * Why a connection was closed: its client read nothing, all connections together had too many bytes, or too many
 * connections were open, so that an idle one was closed or a new one refused; or a WebSocket message came in too many
 * fragments, took too long, or all of them that were arriving had too many bytes.
 */
const reasons = [
  "not_reading",
  "unsent_bytes",
  "idle_displaced",
  "refused",
  "message_fragments",
  "message_time",
  "message_bytes"
] as const

const total = Metric.counter("connections_cut_total", {
  description: "Connections that were ended to protect the others, by reason.",
  incremental: true
})

const series = new Map(
  reasons.map(reason => [reason, Metric.taggedWithLabels(total, [MetricLabel.make("reason", reason)])])
)

/** Counts a closed connection. */
export const countCut = (reason: (typeof reasons)[number], tags: MetricTags.MetricTags): void =>
  series.get(reason)!.unsafeUpdate(1, tags)

/** Registers the numbers of connections, the only metrics of a server that is not ours. */
export const registerCounts = (tags: MetricTags.MetricTags): void =>
  MetricTags.register([connections, webSockets], tags)

/** Registers every series with the value 0. */
export const register = (tags: MetricTags.MetricTags): void =>
  MetricTags.register([unsent, received, refusedBodies, connections, webSockets, ...series.values()], tags)
