import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import { type Cause, Effect, type Scope, Stream } from "effect"
import { type ApiError, bodyOf, statusOf } from "./ApiError.ts"
import type { Upgrade } from "./WebSocket.ts"

/** An answer, independent of the transport: what every handler returns. Header names are in lower case. */
export interface Reply {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  /** Bytes are for large answers that many clients are sent: they must not change any more. */
  readonly body: string | Uint8Array | Stream.Stream<Uint8Array> | undefined
  /** Gives back what the body holds, where nobody reads it to its end; idempotent. */
  readonly release?: Effect.Effect<void>
  /** Makes the connection a WebSocket; nothing else is written on it. */
  readonly upgrade?: Upgrade
}

const jsonType = { "content-type": "application/json" }

/** Headers of JSON, and others; made once where many answers have the same. */
export const jsonHeaders = (headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> => ({
  ...jsonType,
  ...headers
})

/** A 200 with JSON text, or with the bytes of it, and {@link jsonHeaders}, which are not copied. */
export const jsonWith = (body: string | Uint8Array, headers: Readonly<Record<string, string>>): Reply => ({
  status: 200,
  headers,
  body
})

/** A 200 with JSON text, or with the bytes of it. */
export const json = (body: string | Uint8Array, headers: Readonly<Record<string, string>> = {}): Reply => ({
  status: 200,
  headers: { ...jsonType, ...headers },
  body
})

/** A 200 with JSON text and its entity tag. Written out, as it is what most requests get and a spread is not free. */
export const jsonWithETag = (body: string, etag: string): Reply => ({
  status: 200,
  headers: { "content-type": jsonType["content-type"], etag },
  body
})

/** A body that is streamed. Where it fails half-way, the connection is cut. */
export const stream = (
  contentType: string,
  body: Stream.Stream<Uint8Array>,
  headers: Readonly<Record<string, string>> = {},
  release?: Effect.Effect<void>
): Reply => ({
  status: 200,
  headers: { "content-type": contentType, ...headers },
  body,
  ...(release === undefined ? {} : { release })
})

/** A status and headers alone. */
export const empty = (status: number, headers: Readonly<Record<string, string>> = {}): Reply => ({
  status,
  headers,
  body: undefined
})

/** The connection becomes a WebSocket. */
export const webSocket = (upgrade: Upgrade): Reply => ({ ...empty(101), upgrade })

/** An answer with an error and any status. */
export const refusal = (status: number, error: string, headers: Readonly<Record<string, string>> = {}): Reply => ({
  status,
  headers: { ...jsonType, ...headers },
  body: bodyOf(error)
})

/** The answer that an error is. */
export const fromError = (error: ApiError): Reply => refusal(statusOf(error), error.error, error.headers)

/** The answer as @effect/platform sends it. */
export const toResponse = (reply: Reply): HttpServerResponse.HttpServerResponse => {
  const { status, headers, body } = reply
  if (body === undefined) return HttpServerResponse.empty({ status, headers })
  const contentType = headers["content-type"]!
  if (body instanceof Uint8Array) return HttpServerResponse.uint8Array(body, { status, headers, contentType })
  return typeof body === "string"
    ? HttpServerResponse.text(body, { status, headers, contentType })
    : HttpServerResponse.stream(body, { status, headers, contentType })
}

/**
 * The platform's server ends a body that fails half-way as if it were complete: `cut` has to end the connection before
 * that, so that no client takes a part for the whole.
 */
const cutOnFailure = (reply: Reply, cut: Effect.Effect<void>): Reply => {
  const { body } = reply
  if (body === undefined || typeof body === "string" || body instanceof Uint8Array) return reply
  const warning = (cause: Cause.Cause<never>) => Effect.logWarning("An answer was cut off half-way", cause)
  return { ...reply, body: Stream.tapErrorCause(body, cause => Effect.zipRight(warning(cause), cut)) }
}

/**
 * Runs a handler to a response, errors included, so that its headers survive in any host. `cut` ends the connection at
 * once.
 */
export const respond = <R>(
  handler: Effect.Effect<Reply, ApiError, R>,
  cut: Effect.Effect<void>
): Effect.Effect<HttpServerResponse.HttpServerResponse, never, R | Scope.Scope> =>
  handler.pipe(
    Effect.tap(reply => (reply.release && Effect.addFinalizer(() => reply.release!)) ?? Effect.void),
    Effect.match({
      onFailure: error => toResponse(fromError(error)),
      onSuccess: reply => toResponse(cutOnFailure(reply, cut))
    })
  )
