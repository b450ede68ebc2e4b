/** An `HttpClient` without a network, and answers for it. */
import * as HttpClient from "@effect/platform/HttpClient"
import { RequestError } from "@effect/platform/HttpClientError"
import type * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import { Clock, Effect, Layer, Stream } from "effect"

/** A request as a server would see it. */
export interface Seen {
  readonly method: string
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: unknown
  /** Milliseconds of the test's clock. */
  readonly at: number
  /** Whether the client has aborted the request. */
  readonly isAborted: () => boolean
}

type Request = HttpClientRequest.HttpClientRequest
type Answer = (request: Request) => Effect.Effect<HttpClientResponse.HttpClientResponse, RequestError>

const bodyOf = (request: Request): unknown =>
  request.body._tag === "Uint8Array" ? JSON.parse(new TextDecoder().decode(request.body.body)) : undefined

/** A client whose n-th request gets the n-th answer, and later ones the last. */
export const make = (answers: readonly [Answer, ...Array<Answer>]) => {
  const seen: Array<Seen> = []
  const client = HttpClient.make((request, url, signal) =>
    Effect.gen(function* () {
      const answer = answers[Math.min(seen.length, answers.length - 1)]!
      seen.push({
        method: request.method,
        url: url.toString(),
        headers: request.headers,
        body: bodyOf(request),
        at: yield* Clock.currentTimeMillis,
        isAborted: () => signal.aborted
      })
      return yield* answer(request)
    })
  )
  return { seen, client, layer: Layer.succeed(HttpClient.HttpClient, client) }
}

/** A status with JSON, or with a text as it is. */
export const status =
  (code: number, body: unknown = {}, headers: Readonly<Record<string, string>> = {}): Answer =>
  request =>
    Effect.sync(() => {
      const text = typeof body === "string" ? body : JSON.stringify(body)
      const type = typeof body === "string" ? "text/plain" : "application/json"
      return HttpClientResponse.fromWeb(
        request,
        new Response(code === 204 ? null : text, { status: code, headers: { "content-type": type, ...headers } })
      )
    })

/** No connection. */
export const refused: Answer = request =>
  Effect.fail(new RequestError({ request, reason: "Transport", cause: new Error("connect ECONNREFUSED") }))

/** Never answers. */
export const hanging: Answer = () => Effect.never

/** An answer after a time. */
export const late =
  (millis: number, answer: Answer): Answer =>
  request =>
    Effect.delay(answer(request), millis)

/** A 200 whose body comes as the stream gives it, on the test's clock. */
export const streaming =
  (contentType: string, body: Stream.Stream<Uint8Array>): Answer =>
  request =>
    Effect.sync(() => {
      const response = HttpClientResponse.fromWeb(
        request,
        new Response("", { headers: { "content-type": contentType } })
      )
      return Object.create(response, { stream: { value: body } })
    })

/** A status whose body never comes. */
export const stalled =
  (code: number): Answer =>
  request =>
    Effect.sync(() =>
      Object.create(HttpClientResponse.fromWeb(request, new Response("", { status: code })), {
        stream: { value: Stream.never }
      })
    )

/** No connection, with Node's error. */
export const unreachable: Answer = request =>
  Effect.fail(
    new RequestError({
      request,
      reason: "Transport",
      cause: Object.assign(new Error("connect ECONNREFUSED 10.1.2.3:8443 (platform.internal)"), {
        code: "ECONNREFUSED"
      })
    })
  )
