/**
 * Metrics of requests that were sent to the node that owns the session.
 */
import { Metric, MetricLabel } from "effect"
import * as MetricTags from "../../MetricTags.ts"

/** The outcome of one attempt. */
export type Outcome = "answered" | "failed" | "not_owner" | "unreachable" | "refused" | "silent" | "busy" | "displaced"

const attempts = Metric.counter("sessions_forwarded_total", {
  description: "Requests sent to the node that owns the session, by outcome.",
  incremental: true
})

const seriesOf = (outcome: Outcome) => Metric.taggedWithLabels(attempts, [MetricLabel.make("outcome", outcome)])

const series: Readonly<Record<Outcome, Metric.Metric.Counter<number>>> = {
  answered: seriesOf("answered"),
  failed: seriesOf("failed"),
  not_owner: seriesOf("not_owner"),
  unreachable: seriesOf("unreachable"),
  refused: seriesOf("refused"),
  silent: seriesOf("silent"),
  busy: seriesOf("busy"),
  displaced: seriesOf("displaced")
}

/** Sessions that this node has taken over. */
export const takeovers = Metric.counter("session_takeovers_total", {
  description: "Sessions of stopped nodes that this node has taken over.",
  incremental: true
})

/** Counts one attempt to send a command. */
export const count = (outcome: Outcome, tags: MetricTags.MetricTags): void => series[outcome].unsafeUpdate(1, tags)

/** Registers every series with the value 0. */
export const register = (tags: MetricTags.MetricTags): void => MetricTags.register(Object.values(series), tags)
