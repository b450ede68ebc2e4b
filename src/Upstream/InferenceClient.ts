/**
 * The inference proxy over HTTP.
 */
import * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import { type Context, Effect, Layer, Metric, Option, type Redacted, type Scope, Stream } from "effect"
import * as MetricTags from "../base/MetricTags.ts"
import * as GeneratedText from "./GeneratedText.ts"
import * as HealthProbe from "./HealthProbe.ts"
import * as Inference from "./Inference.ts"
import { UpstreamFailure } from "./Resilience/UpstreamFailure.ts"
import * as Resilience from "./Resilience.ts"
import * as UpstreamHttp from "./UpstreamHttp.ts"

type Service = Context.Tag.Service<Inference.Inference>

const policy: Resilience.StreamPolicy = { operation: "generate_stream", timeout: "120 seconds" }

/** Requests to the inference proxy. */
const durations = Resilience.durations(
  "inference_request_duration_ms",
  "Requests to the inference proxy, in milliseconds; a stream's lasts until its end"
)

const statusOf = ({ reason, statusCode }: UpstreamFailure): number => {
  if (reason === "circuit_open") return 503
  if (reason === "timeout") return 504
  return statusCode ?? 502
}

const toError = (failure: UpstreamFailure): Inference.InferenceError =>
  new Inference.InferenceError({ statusCode: statusOf(failure), message: failure.message })

const make = (
  client: HttpClient.HttpClient,
  baseUrl: string,
  apiKey: Redacted.Redacted
): Effect.Effect<Service, never, Scope.Scope> =>
  Effect.gen(function* () {
    const http = UpstreamHttp.make(client, { service: "inference proxy", baseUrl, apiKey: Option.some(apiKey) })
    const resilience = yield* Resilience.make({
      upstream: "inference",
      durations,
      operations: [policy.operation]
    })
    const probe = yield* HealthProbe.make(http)

    const open = ({ prompt, maxTokens, model }: Inference.Prompt) =>
      Effect.gen(function* () {
        const request = HttpClientRequest.post("/api/v1/generate/stream").pipe(
          HttpClientRequest.accept("text/event-stream, text/plain"),
          HttpClientRequest.bodyUnsafeJson({ prompt, maxTokens, model })
        )
        const { body, headers } = yield* http.openStream(policy.operation, request)
        const format = GeneratedText.formatOf(headers["content-type"])
        if (Option.isNone(format)) {
          return yield* new UpstreamFailure({
            operation: policy.operation,
            reason: "malformed",
            message: "The inference proxy's answer is neither Server-Sent Events nor plain text"
          })
        }
        return GeneratedText.texts(format.value, body)
      })

    const generateStream: Service["generateStream"] = prompt =>
      Stream.mapError(resilience.stream(policy, open(prompt)), toError)

    return {
      generate: prompt => Stream.mkString(generateStream(prompt)),
      generateStream,
      health: Effect.map(probe, ({ status }) => status === "ok"),
      probe: Effect.asSome(probe)
    }
  })

const absent = new Inference.InferenceError({
  statusCode: 503,
  message: "Inference unavailable: the inference proxy has no address or no credential"
})

const unavailable: Service = {
  generate: () => absent,
  generateStream: () => Stream.fail(absent),
  health: Effect.succeed(false),
  probe: Effect.succeedNone
}

/** The client. Its metrics are registered with 0 in any case. */
export const layer = (settings: Inference.Settings): Layer.Layer<Inference.Inference, never, HttpClient.HttpClient> =>
  Layer.scoped(
    Inference.Inference,
    Effect.gen(function* () {
      const client = yield* HttpClient.HttpClient
      const generated = durations.pipe(Metric.tagged("operation", policy.operation), Metric.tagged("outcome", "ok"))
      MetricTags.register([generated], yield* MetricTags.current)
      return Option.isSome(settings.apiKey) ? yield* make(client, settings.url, settings.apiKey.value) : unavailable
    })
  )
