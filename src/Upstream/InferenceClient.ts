/**
 * The inference proxy over HTTP. It streams a text as Server-Sent Events (HTML Standard, 9.2.6) or as plain text.
 */
import * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import { type Context, Effect, Layer, Metric, Option, type Redacted, Schema, type Scope, Stream } from "effect"
import { excessOfLarge } from "../base/Json/Parsing.ts"
import * as MetricTags from "../base/Observability/MetricTags.ts"
import * as HealthProbe from "./HealthProbe.ts"
import * as Inference from "./Inference.ts"
import { UpstreamFailure } from "./Resilience/UpstreamFailure.ts"
import * as Resilience from "./Resilience.ts"
import * as ServerSentEvents from "./ServerSentEvents.ts"
import * as UpstreamHttp from "./UpstreamHttp.ts"

/** Maximum characters of a generated text. A longer text is a failure. */
export const longestText = 8 * 1024 * 1024

const policy: Resilience.StreamPolicy = { operation: "generate_stream", timeout: "120 seconds" }

const failed = (reason: UpstreamFailure["reason"], message: string): UpstreamFailure =>
  new UpstreamFailure({ operation: policy.operation, reason, message: `The inference proxy's stream ${message}` })

/** Decodes UTF-8 across chunks. Invalid bytes become U+FFFD. */
const decodeText = <E>(bytes: Stream.Stream<Uint8Array, E>): Stream.Stream<string, E> =>
  Stream.suspend(() => {
    const decoder = new TextDecoder("utf-8")
    return Stream.concat(
      Stream.map(bytes, chunk => decoder.decode(chunk, { stream: true })),
      Stream.sync(() => decoder.decode())
    )
  })

const Data = Schema.parseJson(Schema.Record({ key: Schema.String, value: Schema.Unknown }))
const decodeData = Schema.decodeUnknownOption(Data)

/** An event has one piece of text and little else. */
const shape = { levels: 1000, members: 65_536 }

const textMembers = ["text", "delta", "content"] as const

const messageOf = (error: unknown): string =>
  typeof error === "string"
    ? error
    : typeof error === "object" && error !== null && "message" in error && typeof error.message === "string"
      ? error.message
      : "no reason given"

/** Marks the end of the text. */
const textEnd = Symbol("end of the text")

/** A piece of text, which may be empty, the end of the text, or the failure of the stream. */
type Meaning = string | typeof textEnd | UpstreamFailure

const meaningOf = ({ data, isCut, isTooLong, name }: ServerSentEvents.ServerSentEvent): Meaning => {
  if (data.trim() === "[DONE]") return textEnd
  if (isTooLong === true)
    return failed("too_large", `has an event that is longer than ${ServerSentEvents.longestEvent} characters`)
  // The body was truncated.
  if (isCut === true) return ""
  const decoded = excessOfLarge(data, shape) === undefined ? decodeData(data) : Option.none()
  if (Option.isNone(decoded)) return failed("malformed", "has an event whose data is not a JSON object")
  for (const member of textMembers) {
    const text = decoded.value[member]
    if (typeof text === "string") return text
  }
  const error = decoded.value.error ?? (name === "error" ? decoded.value : undefined)
  return error === undefined || error === null
    ? ""
    : failed("status", `reports an error: ${messageOf(error).slice(0, 300)}`)
}

/**
 * The pieces of text in a body of events, up to `[DONE]`. A body that ends without it was truncated. Texts before a failure
 * are returned.
 */
const fromEvents = (body: Stream.Stream<Uint8Array, UpstreamFailure>): Stream.Stream<string, UpstreamFailure> =>
  Stream.map(Stream.fromPull(ServerSentEvents.pull(body)), meaningOf).pipe(
    Stream.concat(Stream.succeed(failed("connection", "ended before [DONE]"))),
    Stream.takeWhile(meaning => meaning !== textEnd),
    Stream.mapEffect(meaning => (typeof meaning === "string" ? Effect.succeed(meaning) : Effect.fail(meaning)))
  )

/** Fails a text that is too long. */
const bounded = (text: Stream.Stream<string, UpstreamFailure>): Stream.Stream<string, UpstreamFailure> =>
  Stream.suspend(() => {
    let length = 0
    return Stream.tap(text, piece => {
      length += piece.length
      return length > longestText
        ? Effect.fail(failed("too_large", `is longer than ${longestText} characters`))
        : Effect.void
    })
  })

/** The pieces of text in a body, which may be empty, by its content type. */
const readers = new Map([
  ["text/event-stream", fromEvents],
  ["text/plain", decodeText<UpstreamFailure>]
])

type Service = Context.Tag.Service<Inference.Inference>

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
        const { body, type = "text/plain" } = yield* http.openStream(policy.operation, request)
        const read = readers.get(type)
        if (read === undefined) {
          return yield* new UpstreamFailure({
            operation: policy.operation,
            reason: "malformed",
            message: "The inference proxy's answer is neither Server-Sent Events nor plain text"
          })
        }
        return bounded(Stream.filter(read(body), piece => piece !== ""))
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
