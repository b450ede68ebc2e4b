/** The answers of handlers, independent of the transport, and how @effect/platform sends them. */
import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import { type Cause, Effect, Option, type Scope, Stream } from "effect"
import { type ApiError, bodyOf, statusOf } from "./ApiError.ts"
import type { Upgrade } from "./WebSocket.ts"

/** Where a {@link BodyWriter} writes. */
export interface Outlet {
  /** Bytes that were written and have not been sent. */
  readonly unsent: number
  /** Bytes that were sent. While it grows, the client reads. */
  readonly sent: number
  /** Writes bytes, which must not change. Whatever is written after the end or the disconnection is dropped. */
  readonly write: (bytes: Uint8Array) => void
  /** Ends the body as a whole one. What is unsent is sent, if the client reads it within the time of the server. */
  readonly end: () => void
  /** Closes the connection, so that no client regards what it has as the whole body. */
  readonly cut: () => void
}

/**
 * A body that is written as it is made, without a fiber, which costs a fraction of a stream. The resources of its answer
 * are released when it has ended or the client has disconnected.
 */
export interface BodyWriter {
  readonly onOpen: (outlet: Outlet) => void
  /** Called when all that was written has been sent. */
  readonly onDrain: () => void
  /** Called if others need the memory of the unsent bytes: the body has to end. */
  readonly onSlow: () => void
}

/** An answer, independent of the transport: the result of every handler. Header names are in lower case. */
export interface Reply {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  /** Bytes are for large answers that are sent to many clients: they must not change. */
  readonly body: string | Uint8Array | Stream.Stream<Uint8Array> | BodyWriter | undefined
  /** Releases the resources of a body that is not read to its end; idempotent. */
  readonly release?: Effect.Effect<void>
  /** Makes the connection a WebSocket; nothing else is written on it. */
  readonly upgrade?: Upgrade
}

const jsonType = { "content-type": "application/json" }

/** Headers of JSON, and others. To be made once if many answers have the same. */
export const jsonHeaders = (headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> => ({
  ...jsonType,
  ...headers
})

/** A 200 with JSON text, or its bytes, and {@link jsonHeaders}, which are not copied. */
export const jsonWith = (body: string | Uint8Array, headers: Readonly<Record<string, string>>): Reply => ({
  status: 200,
  headers,
  body
})

/** A 200 with JSON text, or its bytes. */
export const json = (body: string | Uint8Array, headers: Readonly<Record<string, string>> = {}): Reply =>
  jsonWith(body, jsonHeaders(headers))

/** A 200 with JSON text and its entity tag. Without a spread, because most requests get this answer. */
export const jsonWithETag = (body: string, etag: string): Reply => ({
  status: 200,
  headers: { "content-type": jsonType["content-type"], etag },
  body
})

/** A streamed body. If it fails before its end, the connection is closed. */
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

/** A body that is written as it is made. `release` runs after its end. */
export const written = (
  contentType: string,
  body: BodyWriter,
  headers: Readonly<Record<string, string>>,
  release: Effect.Effect<void>
): Reply => ({ status: 200, headers: { "content-type": contentType, ...headers }, body, release })

/** Whether a body is a {@link BodyWriter}. */
export const isWriter = (body: Stream.Stream<Uint8Array> | BodyWriter): body is BodyWriter => "onOpen" in body

/** What a writer writes, for servers that take streams alone. */
const streamOf = (writer: BodyWriter, cut: Effect.Effect<void>): Stream.Stream<Uint8Array> =>
  Stream.suspend(() => {
    let chunks: Array<Uint8Array> = []
    let [sent, taken, unsent, isEnded, isCut] = [0, 0, 0, false, false]
    const latch = Effect.unsafeMakeLatch(false)
    writer.onOpen({
      get unsent() {
        return unsent
      },
      get sent() {
        return sent
      },
      write: bytes => {
        if (isEnded) return
        chunks.push(bytes)
        unsent += bytes.length
        latch.unsafeOpen()
      },
      end: () => {
        isEnded = true
        latch.unsafeOpen()
      },
      cut: () => {
        isEnded = true
        isCut = true
        latch.unsafeOpen()
      }
    })
    const next = Effect.suspend(() => {
      // The server takes more once it has sent what it had.
      sent += taken
      unsent -= taken
      taken = 0
      if (unsent === 0 && sent > 0) writer.onDrain()
      return Effect.flatMap(latch.await, (): Effect.Effect<Uint8Array, Option.Option<never>> => {
        if (isCut) return Effect.zipRight(cut, Effect.fail(Option.none()))
        if (chunks.length === 0) return Effect.fail(Option.none())
        const bytes = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)
        chunks = []
        taken = bytes.length
        if (!isEnded) latch.unsafeClose()
        return Effect.succeed(bytes)
      })
    })
    return Stream.repeatEffectOption(next)
  })

export const empty = (status: number, headers: Readonly<Record<string, string>> = {}): Reply => ({
  status,
  headers,
  body: undefined
})

export const webSocket = (upgrade: Upgrade): Reply => ({ ...empty(101), upgrade })

export const refusal = (status: number, error: string, headers: Readonly<Record<string, string>> = {}): Reply => ({
  status,
  headers: jsonHeaders(headers),
  body: bodyOf(error)
})

export const fromError = (error: ApiError): Reply => refusal(statusOf(error), error.error, error.headers)

/** The answer as @effect/platform sends it. `cut` closes the connection at once. */
export const toResponse = (
  reply: Reply,
  cut: Effect.Effect<void> = Effect.void
): HttpServerResponse.HttpServerResponse => {
  const { status, headers, body } = reply
  if (body === undefined) return HttpServerResponse.empty({ status, headers })
  const contentType = headers["content-type"]!
  if (body instanceof Uint8Array) return HttpServerResponse.uint8Array(body, { status, headers, contentType })
  return typeof body === "string"
    ? HttpServerResponse.text(body, { status, headers, contentType })
    : HttpServerResponse.stream(isWriter(body) ? streamOf(body, cut) : body, { status, headers, contentType })
}

/**
 * The platform's server ends a body that fails as if it were complete: `cut` has to close the connection before
 * that, so that no client regards a part as the whole.
 */
const cutOnFailure = (reply: Reply, cut: Effect.Effect<void>): Reply => {
  const { body } = reply
  if (body === undefined || typeof body === "string" || body instanceof Uint8Array || isWriter(body)) return reply
  const warning = (cause: Cause.Cause<never>) => Effect.logWarning("An answer was cut off half-way", cause)
  return { ...reply, body: Stream.tapErrorCause(body, cause => Effect.zipRight(warning(cause), cut)) }
}

/**
 * Runs a handler to a response, errors included, so that its headers survive in any host. `cut` closes the connection
 * at once.
 */
export const respond = <R>(
  handler: Effect.Effect<Reply, ApiError, R>,
  cut: Effect.Effect<void>
): Effect.Effect<HttpServerResponse.HttpServerResponse, never, R | Scope.Scope> =>
  handler.pipe(
    Effect.tap(reply => (reply.release && Effect.addFinalizer(() => reply.release!)) ?? Effect.void),
    Effect.match({
      onFailure: error => toResponse(fromError(error)),
      onSuccess: reply => toResponse(cutOnFailure(reply, cut), cut)
    })
  )
