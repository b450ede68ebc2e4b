/** The metrics of the process and of an instance, measured and rendered. */
import { Context, Effect, Layer, Metric, type Scope } from "effect"
import * as LogOutput from "./LogOutput.ts"
import * as MetricTags from "./MetricTags.ts"
import * as ProcessMetrics from "./ProcessMetrics.ts"
import * as Samples from "./Samples.ts"

/** The metrics of the process in the formats of both endpoints. */
export class Metrics extends Context.Tag("causeway/Metrics")<
  Metrics,
  {
    /** All series with their present values. */
    readonly samples: Effect.Effect<ReadonlyArray<Samples.Sample>>
    /** All series as the JSON text of `{metrics: […]}`. */
    readonly json: Effect.Effect<string>
    /** All series in the Prometheus text exposition format 0.0.4. */
    readonly prometheus: Effect.Effect<string>
    /**
     * Runs a measurement before each snapshot of the metrics, until the scope closes. A measurement has a timeout of
     * one second, after which its gauges keep their values.
     */
    readonly measure: (measurement: Effect.Effect<void>) => Effect.Effect<void, never, Scope.Scope>
  }
>() {}

const bounded = (measurement: Effect.Effect<void>): Effect.Effect<void> =>
  measurement.pipe(
    Effect.timeoutOption("1 second"),
    Effect.catchAllCause(cause => Effect.logError("A measurement failed", cause))
  )

/** Reads Effect's metric registry, without the series of other instances, and measures the process. */
export const layer: Layer.Layer<Metrics> = Layer.merge(
  Layer.effect(
    Metrics,
    Effect.map(MetricTags.current, tags => {
      const measurements = new Set<Effect.Effect<void>>([ProcessMetrics.measure])
      LogOutput.register()
      const samples = Effect.suspend(() => Effect.forEach(measurements, bounded, { discard: true })).pipe(
        Effect.zipRight(Metric.snapshot),
        Effect.map(pairs => Samples.fromSnapshot(pairs, tags))
      )
      return {
        samples,
        json: Effect.map(samples, Samples.toJson),
        prometheus: Effect.map(samples, Samples.toPrometheus),
        measure: measurement =>
          Effect.asVoid(
            Effect.acquireRelease(
              Effect.sync(() => measurements.add(measurement)),
              () => Effect.sync(() => measurements.delete(measurement))
            )
          )
      }
    })
  ),
  ProcessMetrics.layer
)
