/**
 * Metrics of connections: their number, their memory, and those that the server closed.
 */
import { Metric, MetricLabel } from "effect"
import * as MetricTags from "../base/MetricTags.ts"

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
