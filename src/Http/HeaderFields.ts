/**
 * The header fields that are read from every request: whether any was dropped or repeated, its credential, and its id.
 * A browser cannot set headers of a WebSocket handshake, so it sends its credential as a subprotocol.
 */

import { IncomingMessage } from "node:http"
import type * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import { Effect } from "effect"
import { randomHex } from "../base/RandomHex.ts"

/**
 * Maximum number of header lines of a request. The limit on their bytes would allow more, but only attackers send more.
 */
export const maxFields = 2000

/** Entries of `rawHeaders`, a name and a value for each line, that node keeps by default. */
const entriesByNode = 2000

/** Why a request is refused for its version or its header fields. */
export interface FieldsProblem {
  readonly status: 400 | 431 | 505
  readonly error: string
}

/**
 * Relevant fields that a request may have only once (RFC 9110, 5.3). Of several node keeps the first, while a proxy may
 * have used the last. The values of two keys of a write, joined, would be a third one. Of the other fields, node joins
 * those that RFC 9110 allows to be joined, and drops only ones that have no meaning here.
 */
const singular = [
  "Host",
  "Authorization",
  "Content-Type",
  "Content-Length",
  "Idempotency-Key",
  "If-Modified-Since",
  "If-Unmodified-Since"
]

/** The index in {@link singular} by the length of a name: most names are ruled out by it. */
const byLength: ReadonlyArray<number | undefined> = Array.from({ length: 20 }, (_, length) => {
  const index = singular.findIndex(name => name.length === length)
  return index === -1 ? undefined : index
})

const lower = singular.map(name => name.toLowerCase())

/** Compares the two common spellings first. */
const isNamed = (name: string, index: number): boolean =>
  name === singular[index] || name === lower[index] || name.toLowerCase() === lower[index]

/** The number of entries beyond which the server of a request may have dropped some. */
const entriesOf = (request: IncomingMessage): number => {
  const server: unknown = Reflect.get(request.socket, "server")
  const most: unknown =
    typeof server === "object" && server !== null ? Reflect.get(server, "maxHeadersCount") : undefined
  if (typeof most !== "number") return entriesByNode
  return most === 0 ? Number.POSITIVE_INFINITY : 2 * most
}

/** The problem with the version or the header fields of a request, if any. */
export const problemOfFields = (request: IncomingMessage): FieldsProblem | undefined => {
  const { httpVersion, httpVersionMajor, rawHeaders } = request
  // The parser of node accepts any version on the request line (RFC 9110, 15.6.6).
  if (httpVersionMajor !== 1) return { status: 505, error: `HTTP/${httpVersion} is not supported here; use HTTP/1.1` }
  const entries = rawHeaders.length
  if (entries > 2 * maxFields) {
    return { status: 431, error: `The request has ${entries / 2} header lines; the limit is ${maxFields}` }
  }
  // Few requests have enough lines for the limit of the server to matter.
  if (entries >= 64) {
    const most = entriesOf(request)
    if (entries >= most)
      return { status: 431, error: `The request has ${most / 2} header lines or more, which is too many` }
  }
  let seen = 0
  for (let at = 0; at < entries; at += 2) {
    const name = rawHeaders[at]!
    const index = byLength[name.length]
    if (index === undefined || !isNamed(name, index)) continue
    const bit = 1 << index
    if ((seen & bit) !== 0) return { status: 400, error: `The header ${singular[index]} appears twice in the request` }
    seen |= bit
  }
  return undefined
}

/**
 * The value of `Authorization`, or `undefined` if the request has several (RFC 9110, 11.6.2): node keeps the first,
 * while a proxy may have checked another one.
 */
export const authorizationOf = (request: IncomingMessage): string | undefined => {
  const { authorization } = request.headers
  if (authorization === undefined) return undefined
  return request.headersDistinct.authorization?.length === 1 ? authorization : undefined
}

/** {@link authorizationOf} for a request of @effect/platform. */
export const authorizationOfPlatform = ({
  headers,
  source
}: HttpServerRequest.HttpServerRequest): string | undefined =>
  source instanceof IncomingMessage ? authorizationOf(source) : headers.authorization

/** The header that identifies a request, for its client and in logs; the response has it too. */
export const requestIdHeader = "x-request-id"

/** The annotation of log lines that shows it. */
export const requestIdAnnotation = "requestId"

/** Ids that proxies and clients commonly send: UUIDs, ULIDs, trace ids, paths of these. It cannot forge a log line. */
const requestIdPattern = /^[A-Za-z0-9][A-Za-z0-9._~:/+=@-]{0,127}$/

/** The id that a client has sent, if it is fit for headers and logs. */
export const requestIdOf = (value: string | ReadonlyArray<string> | undefined): string | undefined =>
  typeof value === "string" && requestIdPattern.test(value) ? value : undefined

/** Makes unique ids: a random prefix for this process, and a counter. */
export const requestIds: Effect.Effect<() => string> = Effect.map(randomHex(2), prefix => {
  let count = 0
  return () => `${prefix}-${++count}`
})

/** The subprotocol of our WebSockets. A client that sends its credential as a subprotocol offers ours too. */
export const subprotocol = "causeway.v1"

const bearerPrefix = "bearer."

/** What a `Sec-WebSocket-Protocol` header offers. */
export const offeredBy = (header: string | undefined): ReadonlyArray<string> =>
  (header ?? "")
    .split(",")
    .map(part => part.trim())
    .filter(part => part !== "")

/** The credentials among the subprotocols that are offered. */
export const bearersOf = (offered: ReadonlyArray<string>): ReadonlyArray<string> =>
  offered.filter(part => part.startsWith(bearerPrefix)).map(part => part.slice(bearerPrefix.length))

const base64Url = /^[\w-]+$/

/**
 * The credential of a handshake as the value of `Authorization`: that header, or the subprotocol `bearer.<base64url>`.
 * Two credentials count as none, even if they are equal: a proxy that checks the request must look at
 * the one that is used here.
 */
export const credentialOf = (request: IncomingMessage): string | undefined => {
  const { authorization, "sec-websocket-protocol": header } = request.headers
  const offered = offeredBy(header)
  const bearers = bearersOf(offered)
  if (bearers.length === 0) return authorizationOf(request)
  const [key = ""] = bearers
  const isAlone = bearers.length === 1 && authorization === undefined && offered.includes(subprotocol)
  return isAlone && base64Url.test(key) ? `Bearer ${Buffer.from(key, "base64url")}` : undefined
}
