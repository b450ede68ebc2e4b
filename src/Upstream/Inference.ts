/**
 * The inference proxy: text generation for the gateway itself. This is the port; the client of a real proxy is
 * `InferenceClient`.
 */
import { Config, Context, type Effect, Option, type Redacted, Schema, type Stream } from "effect"
import * as Setting from "../base/Setting.ts"
import type { Health } from "./HealthProbe.ts"

/**
 * The inference proxy could not be reached, failed, or is not configured.
 *
 * `statusCode` is the proxy's if it answered; else 503 while the breaker is open or no proxy is configured, 504 for a
 * timeout, and 502 otherwise.
 */
export class InferenceError extends Schema.TaggedError<InferenceError>()("InferenceError", {
  statusCode: Schema.Int,
  message: Schema.String
}) {}

/** A request for a generated text. */
export interface Prompt {
  readonly prompt: string
  readonly maxTokens?: number | undefined
  /** Chosen by the proxy by default. */
  readonly model?: string | undefined
}

/** The inference proxy. */
export class Inference extends Context.Tag("causeway/Inference")<
  Inference,
  {
    /** Generates a whole text. */
    readonly generate: (prompt: Prompt) => Effect.Effect<string, InferenceError>
    /**
     * Generates a text as a stream of pieces, within 120 s in all.
     *
     * The request is aborted when the stream is interrupted, and never repeated.
     */
    readonly generateStream: (prompt: Prompt) => Stream.Stream<string, InferenceError>
    /** Whether the proxy is healthy; `false` if none is configured. */
    readonly health: Effect.Effect<boolean>
    /** The proxy's health, within 2 s; `None` if none is configured. */
    readonly probe: Effect.Effect<Option.Option<Health>>
  }
>() {}

/** The default base address of the inference proxy. */
export const defaultUrl = "http://127.0.0.1:5180"

/** Without a key there is no inference. */
export interface Settings {
  /** Base address without a slash at its end. */
  readonly url: string
  readonly apiKey: Option.Option<Redacted.Redacted>
}

/** No inference. */
export const none: Settings = { url: defaultUrl, apiKey: Option.none() }

/** The settings as configuration variables. */
export const config: Config.Config<Settings> = Config.all({
  url: Setting.baseUrl("INFERENCE_URL", {
    description: "Base address of the inference proxy",
    default: defaultUrl
  }),
  apiKey: Setting.optionalCredential("INFERENCE_API_KEY", {
    description: "Bearer credential for the inference proxy; there is no inference without it"
  })
})

/** Settings that are valid but probably a mistake, for the log. */
export const warnings = ({ apiKey, url }: Settings): ReadonlyArray<string> =>
  url !== defaultUrl && Option.isNone(apiKey)
    ? ["INFERENCE_URL is set but INFERENCE_API_KEY is empty: the inference integration will fail"]
    : []
