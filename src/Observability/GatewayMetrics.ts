/**
 * What the gateway counts: WebSocket connections, messages by type, and turns. Each is there from the start, with 0.
 */
import { Metric } from "effect"
import { Answer } from "../Gateway/Protocol/Answer.ts"
import { eventTypes } from "../Gateway/Protocol/Event.ts"
import { requestTypes } from "../Gateway/Protocol/Request.ts"
import * as LabelValues from "./LabelValues.ts"

const total = (name: string, description: string): Metric.Metric.Counter<number> =>
  Metric.counter(name, { description, incremental: true })

const connections = Metric.gauge("ws_connections_active", { description: "Current WebSocket connections." })

/** Counts a WebSocket that was opened, a gateway client's or a follower's of the change log. */
export const connectionOpened = (): void => connections.unsafeModify(1, [])

/** Counts one of them off. */
export const connectionClosed = (): void => connections.unsafeModify(-1, [])

/** The type of a message that cannot be understood. */
export const invalid = "invalid"

/** Messages from clients; what cannot be understood counts as {@link invalid}. */
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

/** Reads and writes of the session database that found it damaged. */
export const sessionDatabaseDamage = LabelValues.counter("session_database_damage_total", {
  label: "operation",
  description: "Reads and writes of the session database that met a damaged or unreadable page."
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
  received.register([...requestTypes, invalid])
  sent.register([...Answer.members.map(({ fields }) => fields.type.literals[0]), ...eventTypes])
  dropped.register()
  sessionDatabaseDamage.register(["read", "write"])
}
