import { Context, Effect, Layer, Metric } from "effect"
import * as ProcessMetrics from "./ProcessMetrics.ts"
import * as Prometheus from "./Prometheus.ts"
import * as Samples from "./Samples.ts"

/** What the process has counted and measured, ready to be shown. */
export class Metrics extends Context.Tag("causeway/Metrics")<
  Metrics,
  {
    /** All series as the JSON text of `{metrics: […]}`. */
    readonly json: Effect.Effect<string>
    /** All series in the Prometheus text exposition format 0.0.4. */
    readonly prometheus: Effect.Effect<string>
  }
>() {}

const samples = Effect.map(Effect.zipRight(ProcessMetrics.measure, Metric.snapshot), Samples.fromSnapshot)

/** Shows Effect's metrics registry, and measures the process while it lasts. */
export const layer: Layer.Layer<Metrics> = Layer.merge(
  Layer.succeed(Metrics, {
    json: Effect.map(samples, Samples.toJson),
    prometheus: Effect.map(samples, Prometheus.render)
  }),
  ProcessMetrics.layer
)
