/**
 * Metrics of the gateway: messages and events by type, and turns.
 */

import { Metric } from "effect"
import * as MetricTags from "../base/Observability/MetricTags.ts"
import * as LabelValues from "../base/Observability/MetricTags.ts"
import { Answer } from "./Protocol/Answer.ts"
import { eventTypes } from "./Protocol/Event.ts"
import { requestTypes } from "./Protocol/Request.ts"

const total = (name: string, description: string): Metric.Metric.Counter<number> =>
  Metric.counter(name, { description, incremental: true })

/** The label of a message that cannot be decoded. */
export const invalid = "invalid"

/** Messages from clients. A message that cannot be decoded counts as {@link invalid}. */
export const received = LabelValues.counter("ws_messages_received_total", {
  label: "type",
  description: "Inbound messages, by type."
})

/** Events and answers to clients. */
export const sent = LabelValues.counter("ws_messages_sent_total", {
  label: "type",
  description: "Outbound events, by type."
})

/** Events to clients that follow a session over HTTP. */
export const sentOverHttp = LabelValues.counter("http_session_events_sent_total", {
  label: "type",
  description: "Events of sessions sent by event streams and long polls, by type."
})

/** Streams of sessions and turns, over HTTP and over the WebSocket of chats. */
export const streams = LabelValues.counter("session_streams_total", {
  label: "protocol",
  description: "Streams of sessions and turns, by protocol."
})

/** The protocols of streams. */
export const protocols = ["durable_streams", "ag_ui", "ai_sdk", "ai_sdk_websocket"] as const

/** The types of frames on the WebSocket of chats. */
export const chatFrames = {
  received: ["chat_send", "chat_resume", "chat_abort"],
  sent: ["chat_start", "chat_end", "chat_no-active", "chat_error"]
} as const

/** Events of the agent platform that were dropped. Their types come from outside, so the number of labels is limited. */
export const dropped = LabelValues.counter("platform_events_dropped_total", {
  label: "type",
  description: "Events of the agent platform that were dropped, by type.",
  most: 50
})

/** Counters of the starts and ends of turns. Interrupted turns are not counted at their end. */
export const turns = {
  started: total("turns_started_total", "Turns initiated."),
  completed: total("turns_completed_total", "Turns completed."),
  errored: total("turns_errored_total", "Turns that errored.")
}

/** Registers every series with the value 0. */
export const register = (tags: MetricTags.MetricTags): void => {
  MetricTags.register(Object.values(turns), tags)
  received.register([...requestTypes, ...chatFrames.received, invalid], tags)
  const answers = Answer.members.map(({ fields }) => fields.type.literals[0])
  sent.register([...answers, ...chatFrames.sent, ...eventTypes], tags)
  streams.register(protocols, tags)
  sentOverHttp.register(eventTypes, tags)
  dropped.register([], tags)
}
