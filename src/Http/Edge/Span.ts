import type { IncomingMessage } from "node:http"
import * as Headers from "@effect/platform/Headers"
import * as HttpTraceContext from "@effect/platform/HttpTraceContext"
import { Effect, Option, type Tracer } from "effect"
import { type ApiError, statusOf } from "../ApiError.ts"
import { fromError, type Reply } from "../Reply.ts"

/** A 4xx, such as 404, is not a failure of the service: its span ends with OK. */
const answered = <R>(handler: Effect.Effect<Reply, ApiError, R>): Effect.Effect<Reply, ApiError, R> =>
  Effect.catchIf(
    handler,
    error => statusOf(error) < 500,
    error => Effect.succeed(fromError(error))
  )

/**
 * Runs a request's handler in its own span, a child of the client's if its `traceparent` names one. A request that
 * matches no endpoint has no route. `onSpan` gets the span, for other log lines of the request.
 */
export const inServerSpan = <R>(
  handler: Effect.Effect<Reply, ApiError, R>,
  route: string | undefined,
  request: IncomingMessage,
  id: string,
  onSpan: (span: Tracer.Span) => void
): Effect.Effect<Reply, ApiError, R> =>
  Effect.useSpan(
    `http.server ${request.method}`,
    {
      parent: Option.getOrUndefined(HttpTraceContext.fromHeaders(Headers.fromInput(request.headers))),
      kind: "server",
      captureStackTrace: false,
      attributes: {
        "http.request.method": request.method,
        ...(route === undefined ? {} : { "http.route": route }),
        "http.request.id": id,
        "url.path": request.url?.split("?", 1)[0],
        ...(request.headers["user-agent"] === undefined
          ? {}
          : { "user_agent.original": request.headers["user-agent"] }),
        ...(request.socket.remoteAddress === undefined ? {} : { "client.address": request.socket.remoteAddress })
      }
    },
    span => {
      onSpan(span)
      return answered(Effect.withParentSpan(handler, span)).pipe(
        Effect.tapBoth({
          onSuccess: reply => Effect.sync(() => span.attribute("http.response.status_code", reply.status)),
          onFailure: error => Effect.sync(() => span.attribute("http.response.status_code", statusOf(error)))
        })
      )
    }
  )
