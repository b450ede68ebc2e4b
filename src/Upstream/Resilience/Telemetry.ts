/**
 * Metrics, logs and spans of the calls to one upstream service, and the failures that are counted in them.
 */
import { type Duration, Effect, Metric, MetricBoundaries } from "effect"
import * as MetricTags from "../../base/MetricTags.ts"
import * as Monotonic from "../../base/Monotonic.ts"
import type { CircuitOpen } from "./CircuitBreaker.ts"
import { measuredOutcomes, type Outcome, UpstreamFailure } from "./UpstreamFailure.ts"

/** The names under which an upstream is measured. */
export interface Options {
  /** Name in metrics, logs and spans. */
  readonly upstream: string
  /** Histogram of single requests in milliseconds; gets the labels `operation` and `outcome`. */
  readonly durations: Metric.Metric.Histogram<number>
  /** Operations whose series are registered with 0. */
  readonly operations?: ReadonlyArray<string>
}

/** Metrics, logs and spans of one upstream service. */
export interface Telemetry {
  /** Records the duration of a request that was sent; `start` is in monotonic milliseconds. */
  readonly measure: (operation: string, start: number, outcome: Outcome) => Effect.Effect<void>
  /** Counts and logs a retry, before its delay. */
  readonly retrying: (operation: string, failure: UpstreamFailure, delayMillis: number) => Effect.Effect<void>
  /** Counts a call that an open breaker rejected, and fails with `circuit_open`. */
  readonly rejected: (operation: string) => (error: CircuitOpen) => Effect.Effect<never, UpstreamFailure>
  /** Name and options of the span of an operation. */
  readonly span: (operation: string) => readonly [
    name: string,
    options: {
      readonly attributes: { readonly upstream: string; readonly operation: string }
      readonly captureStackTrace: false
    }
  ]
}

/** A histogram of request durations in milliseconds; gets the labels `operation` and `outcome`. */
export const durations = (name: string, description: string): Metric.Metric.Histogram<number> =>
  Metric.histogram(
    name,
    MetricBoundaries.fromIterable([
      5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 15_000, 30_000, 60_000, 120_000
    ]),
    description
  )

const retryCounter = Metric.counter("upstream_retries_total", {
  description: "Retries of calls to an upstream",
  incremental: true
})

const rejectedCounter = Metric.counter("circuit_breaker_rejected_total", {
  description: "Calls that an open circuit breaker rejected",
  incremental: true
})

/** The failure of a call without an answer within `timeout`. */
export const timedOut = (operation: string, timeout: Duration.DurationInput) => (): UpstreamFailure =>
  new UpstreamFailure({
    operation,
    reason: "timeout",
    message: `No answer to ${operation} within ${Monotonic.words(timeout)}`
  })

/** Registers the series of `operations` and returns how calls are recorded. */
export const make = (options: Options): Effect.Effect<Telemetry> =>
  Effect.map(MetricTags.current, (tags): Telemetry => {
    const { upstream } = options
    const retryCount = Metric.tagged(retryCounter, "upstream", upstream)
    const rejectedCount = Metric.tagged(rejectedCounter, "upstream", upstream)
    for (const operation of options.operations ?? []) {
      const counters = [retryCount, rejectedCount].map(counter => Metric.tagged(counter, "operation", operation))
      const timed = Metric.tagged(options.durations, "operation", operation)
      const histograms = measuredOutcomes.map(outcome => Metric.tagged(timed, "outcome", outcome))
      MetricTags.register([...counters, ...histograms], tags)
    }
    return {
      measure: (operation, start, outcome) =>
        Effect.flatMap(Monotonic.millis, now => {
          const millis = Math.max(0, now - start)
          const histogram = Metric.tagged(Metric.tagged(options.durations, "operation", operation), "outcome", outcome)
          return Effect.zipRight(
            Metric.update(histogram, millis),
            Effect.annotateLogs(Effect.logDebug("Called an upstream"), { upstream, operation, outcome, millis })
          )
        }),
      retrying: (operation, failure, delayMillis) =>
        Effect.zipRight(
          Metric.increment(Metric.tagged(retryCount, "operation", operation)),
          Effect.annotateLogs(Effect.logDebug("Retrying a call to an upstream"), {
            upstream,
            operation,
            delayMs: Math.round(delayMillis),
            failure: failure.message
          })
        ),
      rejected: operation => error =>
        Effect.zipRight(
          Metric.increment(Metric.tagged(rejectedCount, "operation", operation)),
          new UpstreamFailure({
            operation,
            reason: "circuit_open",
            retryAfterMillis: error.retryAfterMillis,
            message: `The circuit breaker of ${error.upstream} is open; next try in ${Math.ceil(error.retryAfterMillis / 1000)} s`
          })
        ),
      span: operation => [`${upstream}.${operation}`, { attributes: { upstream, operation }, captureStackTrace: false }]
    }
  })
