/**
 * What the gateway counts: WebSocket connections, messages by type, and turns. Each is there from the start, with 0.
 */
import { Metric } from "effect"
import * as LabelValues from "./LabelValues.ts"

const total = (name: string, description: string): Metric.Metric.Counter<number> =>
  Metric.counter(name, { description, incremental: true })

/** Clients' WebSocket connections that are open. */
export const connections = Metric.gauge("ws_connections_active", { description: "Current WebSocket connections." })

/** Messages from clients. What cannot be understood has no type of its own: count it as `invalid`. */
export const received = LabelValues.counter("ws_messages_received_total", {
  label: "type",
  description: "Inbound messages, by type."
})

/** Events and answers to clients. */
export const sent = LabelValues.counter("ws_messages_sent_total", {
  label: "type",
  description: "Outbound events, by type."
})

/** Events of the agent platform that became no client event; their types come from outside. */
export const dropped = LabelValues.counter("platform_events_dropped_total", {
  label: "type",
  description: "Events of the agent platform that clients are told nothing of, by type.",
  most: 50
})

/** Turns begun. */
export const turnsStarted = total("turns_started_total", "Turns initiated.")

/** Turns that came to their end. */
export const turnsCompleted = total("turns_completed_total", "Turns completed.")

/** Turns that failed. */
export const turnsErrored = total("turns_errored_total", "Turns that errored.")

/** Makes them all known. */
export const register = (): void => {
  for (const metric of [connections, turnsStarted, turnsCompleted, turnsErrored]) metric.register()
  for (const counter of [received, sent, dropped]) counter.register()
}
