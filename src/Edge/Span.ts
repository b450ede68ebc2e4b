import type { IncomingMessage } from "node:http"
import * as Headers from "@effect/platform/Headers"
import * as HttpTraceContext from "@effect/platform/HttpTraceContext"
import { Effect, Option } from "effect"
import { type ApiError, statusOf } from "../Http/ApiError.ts"
import { fromError, type Reply } from "../Http/Reply.ts"

/** A refusal, as for what is not there, is no failure of the service: the span of a 4xx ends well. */
const answered = <R>(handler: Effect.Effect<Reply, ApiError, R>): Effect.Effect<Reply, ApiError, R> =>
  Effect.catchIf(
    handler,
    error => statusOf(error) < 500,
    error => Effect.succeed(fromError(error))
  )

/** Puts a request's handler into a span of its own, under the client's where its `traceparent` names one. */
export const inServerSpan = <R>(
  handler: Effect.Effect<Reply, ApiError, R>,
  endpoint: { readonly name: string; readonly label: string },
  request: IncomingMessage,
  id: string
): Effect.Effect<Reply, ApiError, R> =>
  Effect.useSpan(
    `http.server ${request.method}`,
    {
      parent: Option.getOrUndefined(HttpTraceContext.fromHeaders(Headers.fromInput(request.headers))),
      kind: "server",
      captureStackTrace: false,
      attributes: {
        "http.request.method": request.method,
        "http.route": endpoint.label,
        "http.request.id": id,
        "url.path": request.url?.split("?", 1)[0],
        ...(request.headers["user-agent"] === undefined
          ? {}
          : { "user_agent.original": request.headers["user-agent"] }),
        ...(request.socket.remoteAddress === undefined ? {} : { "client.address": request.socket.remoteAddress })
      }
    },
    span =>
      answered(handler).pipe(
        Effect.withSpan(endpoint.name, { parent: span, captureStackTrace: false }),
        Effect.tapBoth({
          onSuccess: reply => Effect.sync(() => span.attribute("http.response.status_code", reply.status)),
          onFailure: error => Effect.sync(() => span.attribute("http.response.status_code", statusOf(error)))
        })
      )
  )
