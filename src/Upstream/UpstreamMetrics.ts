/**
 * Metrics of requests to upstream services. `Resilience` and `CircuitBreaker` have those of retries and breakers.
 */
import { Metric, MetricBoundaries } from "effect"

/** A histogram of request durations in milliseconds; gets the labels `operation` and `outcome`. */
export const durations = (name: string, description: string): Metric.Metric.Histogram<number> =>
  Metric.histogram(
    name,
    MetricBoundaries.fromIterable([
      5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 15_000, 30_000, 60_000, 120_000
    ]),
    description
  )

/** Requests to the agent platform. */
export const agentPlatform = durations(
  "agent_platform_request_duration_ms",
  "Requests to the agent platform, in milliseconds"
)

/** Requests to the inference proxy; a stream's lasts until its end. */
export const inference = durations(
  "inference_request_duration_ms",
  "Requests to the inference proxy, in milliseconds; a stream's lasts until its end"
)

/** Connections to agent instances that were made again after a drop. */
export const reconnects = Metric.counter("agent_platform_reconnects_total", {
  description: "Connections to agent instances that were re-established",
  incremental: true
})

/** Frames of the agent platform that could not be read. */
export const rejectedFrames = Metric.counter("agent_platform_frames_rejected_total", {
  description: "Frames from agent instances that are no events",
  incremental: true
})

/** Registers a series of each metric, even if no upstream service is configured. */
export const register = (): void => {
  for (const [histogram, operation] of [
    [agentPlatform, "create"],
    [inference, "generate_stream"]
  ] as const) {
    histogram.pipe(Metric.tagged("operation", operation), Metric.tagged("outcome", "ok")).register()
  }
  for (const counter of [reconnects, rejectedFrames]) counter.register()
}
