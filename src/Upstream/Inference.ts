/**
 * The inference proxy: text generation for the gateway itself. This is the port; the client of a real proxy is
 * `InferenceClient`.
 */
import { Config, Context, type Effect, Option, Redacted, Schema, type Stream } from "effect"
import * as Setting from "../Setting.ts"
import * as BaseUrl from "./BaseUrl.ts"
import type { Health } from "./HealthProbe.ts"

/**
 * The inference proxy could not be reached, failed, or is not configured.
 *
 * `statusCode` is the proxy's own where it answered; else 503 while the breaker is open or nothing is configured,
 * 504 for a time-out and 502 for what is no answer.
 */
export class InferenceError extends Schema.TaggedError<InferenceError>()("InferenceError", {
  statusCode: Schema.Int,
  message: Schema.String
}) {}

/** What a text is generated from. */
export interface Prompt {
  readonly prompt: string
  /** Where generation stops at the latest. */
  readonly maxTokens?: number | undefined
  /** The proxy chooses where there is none. */
  readonly model?: string | undefined
}

/** The inference proxy. */
export class Inference extends Context.Tag("causeway/Inference")<
  Inference,
  {
    /** Generates a text, whole. */
    readonly generate: (prompt: Prompt) => Effect.Effect<string, InferenceError>
    /**
     * Generates a text, piece by piece as it comes, within 120 s in all.
     *
     * The request is given up when the consumer leaves, and never made twice.
     */
    readonly generateStream: (prompt: Prompt) => Stream.Stream<string, InferenceError>
    /** Whether the proxy answers its health check; `false` where none is configured. */
    readonly health: Effect.Effect<boolean>
    /** How the proxy is, found out within 2 s; nothing where none is configured. */
    readonly probe: Effect.Effect<Option.Option<Health>>
  }
>() {}

/** Where the proxy is unless told otherwise. */
export const defaultUrl = "http://127.0.0.1:5180"

/** Where the proxy is, and as whom it is called. Without a key there is no inference. */
export interface Settings {
  /** Base address without a slash at its end. */
  readonly url: string
  readonly apiKey: Option.Option<Redacted.Redacted>
}

/** The settings as configuration variables. */
export const config: Config.Config<Settings> = Config.all({
  url: BaseUrl.withDefault("INFERENCE_URL", {
    description: "Base address of the inference proxy",
    default: defaultUrl
  }),
  apiKey: Setting.optionalCredential("INFERENCE_API_KEY", {
    description: "Bearer credential for the inference proxy; there is no inference without it",
    shown: "none"
  }).pipe(Config.map(Option.filter(key => Redacted.value(key) !== "")))
})
