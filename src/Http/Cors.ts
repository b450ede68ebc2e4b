/**
 * Requests of web pages of other origins (Fetch standard, section 3.3): which pages may send them and read their
 * answers.
 */
import type { IncomingMessage, ServerResponse } from "node:http"
import { type Config, Option } from "effect"
import * as Setting from "../base/Setting.ts"
import { parseList } from "./Origin.ts"

/** The allowed origins. `*` allows every page, without its cookies. */
export type AllowedOrigins = "*" | ReadonlyArray<string>

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

const requestHeaders =
  "authorization, content-type, idempotency-key, if-match, if-none-match, last-event-id, traceparent, tracestate, x-request-id"

const exposedHeaders =
  "ETag, Link, Kv-Last-Seq, Kv-Epoch, Kv-Trimmed-Seq, Kv-More, Kv-Count, Repr-Digest, Retry-After, Stream-Next-Offset, Stream-Up-To-Date, Stream-Cursor, Stream-Closed, x-request-id"

/** How long a browser may cache the answer to a preflight. Browsers limit longer times. */
const maxAgeSeconds = 7200

/** Headers that let pages of an origin read an answer. None if the origin is not allowed. */
const headersFor = (allowed: AllowedOrigins, origin: string): Readonly<Record<string, string>> => {
  const exposed = { "access-control-expose-headers": exposedHeaders }
  if (allowed === "*") return { "access-control-allow-origin": "*", ...exposed }
  // The answer depends on the origin, also if it is not allowed.
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

/** Whether the requesting page may read the answer. */
const isAllowed = (headers: Readonly<Record<string, string>>): boolean => "access-control-allow-origin" in headers

/** A preflight has no credential: it asks whether a request with one may be sent. */
const isPreflight = (method: string | undefined, headers: Readonly<Record<string, unknown>>): boolean =>
  method === "OPTIONS" && headers["access-control-request-method"] !== undefined

/** The decision about a request by the standard. */
export interface Decision {
  readonly headers: Readonly<Record<string, string>>
  /** Whether the headers are the whole answer, with the status 204. */
  readonly isComplete: boolean
}

/** The decision about a request; `undefined` if it names no origin. */
export const decide = (
  allowed: AllowedOrigins,
  method: string | undefined,
  requested: Readonly<Record<string, unknown>>
): Decision | undefined => {
  const { origin } = requested
  if (typeof origin !== "string") return undefined
  const headers = headersFor(allowed, origin)
  return isAllowed(headers) && isPreflight(method, requested)
    ? { headers: { ...headers, ...preflightHeaders }, isComplete: true }
    : { headers, isComplete: false }
}

/** {@link decide} for `node:http`. Sets the headers of the response, and returns whether that was the whole answer. */
export const apply = (allowed: AllowedOrigins, request: IncomingMessage, response: ServerResponse): boolean => {
  const decision = decide(allowed, request.method, request.headers)
  if (decision === undefined) return false
  for (const name in decision.headers) response.setHeader(name, decision.headers[name]!)
  if (decision.isComplete) response.writeHead(204).end()
  return decision.isComplete
}

/** Headers for an answer with its own `Vary`, to which the origin is added. */
export const withVary = (
  headers: Readonly<Record<string, string>>,
  vary: string | undefined
): Readonly<Record<string, string>> => {
  if (vary === undefined || headers.vary === undefined) return headers
  return { ...headers, vary: /(^|,)\s*(origin|\*)\s*(,|$)/i.test(vary) ? vary : `${headers.vary}, ${vary}` }
}

/** Whether any origin is allowed: without one, requests need no decision. */
export const isUsed = (allowed: AllowedOrigins): boolean => allowed.length > 0
