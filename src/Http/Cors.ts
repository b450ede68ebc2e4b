/**
 * Requests of web pages of other origins (Fetch standard, section 3.3): who may send them and read their answers.
 */
import type { IncomingMessage, ServerResponse } from "node:http"
import * as HttpApiBuilder from "@effect/platform/HttpApiBuilder"
import type * as HttpApp from "@effect/platform/HttpApp"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import { type Config, Effect, Layer, Option } from "effect"
import * as Setting from "../Setting.ts"
import { parseList } from "./Origin.ts"

/** The origins that may; none where there is none, and `*` means every page, without its cookies. */
export type AllowedOrigins = "*" | ReadonlyArray<string>

/** The origins as a configuration variable. */
export const config: Config.Config<AllowedOrigins> = Setting.declare<AllowedOrigins>(
  "HTTP_ALLOWED_ORIGINS",
  {
    description:
      "Origins of web pages that may use the HTTP interface and event streams, with commas between; * lets every page, without its cookies. WebSockets have GATEWAY_ALLOWED_ORIGINS",
    allowed: "* or origins such as https://app.example.com, with commas between",
    default: [],
    shown: "none"
  },
  text => (text === "*" ? Option.some("*") : parseList(text))
)

const methods = "GET, HEAD, PUT, POST, DELETE"

/** What clients send beside what any page may. */
const requestHeaders =
  "authorization, content-type, idempotency-key, if-match, if-none-match, last-event-id, traceparent, tracestate, x-request-id"

const exposedHeaders = "ETag, Link, Kv-Last-Seq, Kv-Epoch, Kv-Count, Retry-After, x-request-id"

/** How long a browser may keep the answer to a preflight. Longer times are cut by browsers. */
const maxAgeSeconds = 7200

/** Headers by which pages of an origin may read an answer. Without any, the origin is not allowed. */
const headersFor = (allowed: AllowedOrigins, origin: string): Readonly<Record<string, string>> => {
  const exposed = { "access-control-expose-headers": exposedHeaders }
  if (allowed === "*") return { "access-control-allow-origin": "*", ...exposed }
  // The answer depends on the origin, also where it is not allowed.
  const vary = { vary: "Origin" }
  return allowed.includes(origin)
    ? { "access-control-allow-origin": origin, "access-control-allow-credentials": "true", ...exposed, ...vary }
    : vary
}

const preflightHeaders = {
  "access-control-allow-methods": methods,
  "access-control-allow-headers": requestHeaders,
  "access-control-max-age": String(maxAgeSeconds)
}

/** Whether an answer may be read by the page that has asked. */
const isAllowed = (headers: Readonly<Record<string, string>>): boolean => "access-control-allow-origin" in headers

/** A preflight carries no credential: it asks whether the request that has one may be sent. */
const isPreflight = (method: string | undefined, headers: Readonly<Record<string, unknown>>): boolean =>
  method === "OPTIONS" && headers["access-control-request-method"] !== undefined

/**
 * Puts the headers on the response to a request of `node:http`. Where it is a preflight of an allowed origin, the
 * response is its whole answer, and the result `true`.
 */
export const apply = (allowed: AllowedOrigins, request: IncomingMessage, response: ServerResponse): boolean => {
  const { origin } = request.headers
  if (origin === undefined) return false
  const headers = headersFor(allowed, origin)
  for (const name in headers) response.setHeader(name, headers[name]!)
  if (!isAllowed(headers) || !isPreflight(request.method, request.headers)) return false
  response.writeHead(204, preflightHeaders).end()
  return true
}

/** Whether any origin is allowed: without one there is nothing to do for a request. */
export const isUsed = (allowed: AllowedOrigins): boolean => allowed.length > 0

/**
 * The same for apis that @effect/platform serves on a server of the host. Provide it before `errorLayer`, so that pages
 * can read errors too.
 */
export const layer = (allowed: AllowedOrigins): Layer.Layer<never> => {
  if (!isUsed(allowed)) return Layer.empty
  return HttpApiBuilder.middleware(
    Effect.succeed(
      (app: HttpApp.Default): HttpApp.Default =>
        Effect.flatMap(HttpServerRequest.HttpServerRequest, request => {
          const { origin } = request.headers
          if (origin === undefined) return app
          const headers = headersFor(allowed, origin)
          return isAllowed(headers) && isPreflight(request.method, request.headers)
            ? HttpServerResponse.empty({ status: 204, headers: { ...headers, ...preflightHeaders } })
            : Effect.map(app, HttpServerResponse.setHeaders(headers))
        })
    )
  )
}
