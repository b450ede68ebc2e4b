/** The contract of the metrics. */
import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as HttpApiSchema from "@effect/platform/HttpApiSchema"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { InternalServerError, NotFound, Unauthorized } from "../../Http/ApiError.ts"
import { Part, RouteKind } from "../../Http/Contract.ts"
import { operation } from "../../Http/OpenApi/Describe.ts"

/** The media type of the Prometheus text exposition format. */
export const prometheusType = "text/plain; version=0.0.4; charset=utf-8"

/** A series: the metric's name and kind, labels, and the current value. */
export const MetricSample = Schema.Struct({
  name: Schema.String,
  kind: Schema.Literal("counter", "gauge", "histogram"),
  labels: Schema.Record({ key: Schema.String, value: Schema.String }),
  value: Schema.Unknown.annotations({
    description: "A number. For a histogram, an object with count, sum and cumulative buckets."
  })
}).annotations({ identifier: "MetricSample" })

const json = operation({
  operationId: "getMetrics",
  summary: "Metrics as JSON, in dev mode only",
  description: "All series with their current values.",
  answers: {
    200: {
      description: "All series.",
      example: { metrics: [{ name: "process_uptime_seconds", kind: "gauge", labels: {}, value: 12.5 }] }
    },
    404: { description: "The service does not run in dev mode." }
  }
})

const prometheus = operation({
  operationId: "getPrometheusMetrics",
  summary: "Metrics for Prometheus, if METRICS_PROMETHEUS is true",
  description: "If METRICS_TOKEN is set, it requires that token as the bearer token, otherwise none.",
  security: [{}, { bearer: [] }],
  answers: {
    200: { example: "# TYPE process_uptime_seconds gauge\nprocess_uptime_seconds 12.5\n" },
    404: { description: "METRICS_PROMETHEUS is not true." }
  }
})

/** The metrics of the process. */
export const MetricsGroup = HttpApiGroup.make("metrics")
  .add(
    HttpApiEndpoint.get("json", "/api/metrics")
      .addSuccess(Schema.Struct({ metrics: Schema.Array(MetricSample) }).annotations({ identifier: "Metrics" }))
      .annotate(OpenApi.Transform, json)
  )
  .add(
    HttpApiEndpoint.get("prometheus", "/metrics")
      .addSuccess(
        Schema.String.pipe(HttpApiSchema.withEncoding({ kind: "Text", contentType: prometheusType })).annotations({
          description: "Prometheus text exposition format."
        })
      )
      .addError(Unauthorized.Wire)
      .annotate(OpenApi.Transform, prometheus)
  )
  .addError(NotFound.Wire)
  .addError(InternalServerError.Wire)
  .annotate(Part, "metrics")
  .annotate(RouteKind, "monitoring")
  .annotate(OpenApi.Title, "Metrics")
  .annotate(OpenApi.Description, "The metrics of the process.")
